"""Ranks coloured by what their GPUs do: few levels, few changes."""

from __future__ import annotations

import gzip
import json
from functools import partial
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from ray_sentinel.http.server import Request
from ray_sentinel.model.gpus import GpuQuantity, HostRankGpus, RankGpus
from ray_sentinel.model.status import Status
from ray_sentinel.web.changes import changes
from ray_sentinel.web.packing import PACKING_LEVEL
from ray_sentinel.web.questions import UnknownQuestion
from ray_sentinel.web.rank_levels import STALE, chosen_quantity, in_levels
from ray_sentinel.web.routes import PageSource, looked, routes
from tests.support.page_data import status
from tests.support.page_gpus import rank_gpus
from tests.support.page_thousands import a_second_later, scattered

RANKS = 8192


def levels(quantity: GpuQuantity, *values: float, age: float = 2.0) -> list[int | None]:
    """Of the first ranks on node 0 of the page's own job, whose GPUs have these values."""
    mine = [one for one in status().jobs[0].ranks if one.host == "node-0"][: len(values)]
    host = HostRankGpus(
        host="node-0", pids=tuple(one.pid for one in mine), values=values, ages=len(mine) * (age,)
    )
    told = in_levels(status(), RankGpus(quantity=quantity, hosts=(host,)))
    assert [len(job) for job in told["jobs"]] == [8, 0]
    column = told["jobs"][0]
    assert {column[rank] for rank in (1, 3, 5, 7)} == {None}, "of the other node"
    return [column[one.rank] for one in mine]


def test_values_come_as_levels() -> None:
    assert levels("utilisation", 0.0, 0.3, 0.999, 1.0) == [0, 3, 9, 9]
    assert levels("power", 49.9, 50.0, 701.0) == [0, 1, 14]
    assert levels("power", -1.0, 2000.0) == [0, 40]


def test_what_is_not_known_and_what_is_old() -> None:
    assert levels("power") == []
    assert levels("power", 300.0, age=31.0) == [STALE]
    assert levels("power", 300.0, age=30.0) == [6]


def test_the_question_for_a_quantity() -> None:
    assert chosen_quantity("") is None
    assert chosen_quantity("gpus=") is None
    assert chosen_quantity("gpus=power") == "power"
    for wrong in ("gpus=clock", "gpus=%00", "gpus=x", "gpus=power&" + "x" * 9000):
        with pytest.raises(UnknownQuestion):
            chosen_quantity(wrong)


@pytest.mark.parametrize("query", ["", "gpus=power", "gpus=clock"])
def test_the_page_has_levels_only_where_they_are_asked_for(query: str) -> None:
    source = PageSource(status, tuple, rank_gpus=partial(rank_gpus, status()))
    asked = Request(method="GET", path="/api/v1/page", headers={}, query=query)
    response = routes(source)["/api/v1/page"](asked)
    told = json.loads(response.body)
    assert response.status == (400 if "clock" in query else 200)
    assert ("levels" in told) == (query == "gpus=power")
    if "levels" in told:
        assert told["levels"]["quantity"] == "power"
        assert told["levels"]["jobs"][0][3] == STALE, "on the last node, which is silent"


def source_of(now: Status, second: int) -> PageSource:
    return PageSource(lambda: now, tuple, rank_gpus=partial(rank_gpus, now, second=second))


def size(told: Any) -> int:
    return len(gzip.compress(msgspec.json.encode(told), PACKING_LEVEL))


@pytest.mark.parametrize("quantity", ["utilisation", "power"])
def test_a_second_of_thousands_of_ranks_that_all_step_stays_small(quantity: GpuQuantity) -> None:
    seconds = [scattered(RANKS)]
    for seed in range(3):
        seconds.append(a_second_later(seconds[-1], seed))
    looks = [looked(source_of(now, second=at), (quantity,)) for at, now in enumerate(seconds)]
    assert sum(map(size, looks[0].values())) < 100_000
    for before, after in pairwise(looks):
        both = [changes(before[name], after[name]) for name in after]
        assert sum(map(size, both)) < 25_000
        assert size(both[1]) < 8_000, "of which the levels are"


def test_ranks_whose_level_stays_are_not_sent() -> None:
    now = scattered(RANKS)
    before, after = (in_levels(now, rank_gpus(now, "power")) for _ in range(2))
    assert changes(before, after) == []
    after["jobs"][0][77] = 3
    assert changes(before, after) == [[("jobs", 0), [77], [3]]]

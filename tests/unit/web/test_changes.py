"""What changed between two tellings."""

from __future__ import annotations

import copy
from itertools import accumulate
from typing import Any

import msgspec
import pytest

from ray_sentinel.web.changes import Change, changes
from ray_sentinel.web.columns import in_columns
from ray_sentinel.web.live import StreamEvent
from tests.support.page_data import status
from tests.support.page_thousands import a_second_later, scattered


def applied(before: Any, told: list[Change]) -> Any:
    """As ``changes.js`` does."""
    whole = {"": copy.deepcopy(before)}
    for path, *to in told:
        place: Any = whole
        steps = ["", *path]
        name = steps.pop()
        for step in steps:
            place = place[step]
        if len(to) == 1:
            place[name] = to[0]
        else:
            for index, value in zip(accumulate(to[0]), to[1], strict=True):
                place[name][index] = value
    return whole[""]


CASES: list[tuple[Any, Any, int]] = [
    ({"a": 1}, {"a": 1}, 0),
    ({"a": 1, "b": 2}, {"a": 1, "b": None}, 1),
    ({"a": {"b": {"c": 1, "d": 2}}}, {"a": {"b": {"c": 3, "d": 4}}}, 2),
    ({"a": {"b": 1}}, {"a": {"c": 1}}, 1),
    ({"a": {"b": 1}}, {"a": {}}, 1),
    ({"a": [0] * 9}, {"a": [0] * 9 + [1]}, 1),
    ({"a": [1, 2, 3, 4, 5]}, {"a": [7, 2, 3, 4, 9]}, 1),
    ({"a": [1, 2, 3]}, {"a": [4, 5, 3]}, 1),
    ({"a": [{"b": 1}, {"b": 2}]}, {"a": [{"b": 1}, {"b": 3}]}, 1),
    ({"a": [{"b": 1}, 2, 3, 4, 5]}, {"a": [7, 2, {"c": 3}, 4, 5]}, 1),
    ({"a": [[1, 2], [3, 4, 5]]}, {"a": [[1, 2], [3, 4, 6]]}, 1),
    ({"a": [None, 0.5]}, {"a": [0.5, None]}, 1),
    ({"a": []}, {"a": {}}, 1),
    ({"__proto__": {"x": 1}}, {"__proto__": {"x": 2}}, 1),
]


@pytest.mark.parametrize(("before", "after", "number"), CASES)
def test_who_has_the_earlier_one_gets_the_later_one(before: Any, after: Any, number: int) -> None:
    told = msgspec.json.decode(msgspec.json.encode(changes(before, after)))
    assert applied(before, told) == after
    assert len(told) == number


def test_few_places_of_a_long_column_are_told_alone() -> None:
    before, after = {"a": list(range(1000))}, {"a": list(range(1000))}
    after["a"][3], after["a"][700], after["a"][999] = -1, -2, -3
    assert changes(before, after) == [[("a",), [3, 697, 299], [-1, -2, -3]]]


def test_a_status_that_became_another_is_told_by_its_changes() -> None:
    before, after = scattered(64), status(ranks=16, hostile="<b>")
    for one, other in ((before, after), (after, before), (before, a_second_later(before))):
        known, wanted = in_columns(one), in_columns(other)
        assert applied(known, changes(known, wanted)) == wanted


def test_a_second_in_which_all_ranks_of_thousands_step_is_small() -> None:
    before = a_second_later(scattered(8192))
    told = changes(in_columns(before), in_columns(a_second_later(before, seed=9)))
    assert len(StreamEvent("change", told).packed) < 8_000


def test_a_second_in_which_nothing_steps_is_tiny() -> None:
    before = scattered(8192)
    job = before.jobs[0]
    older = [
        msgspec.structs.replace(one, step_age_seconds=(one.step_age_seconds or 0.0) + 1.0)
        for one in job.ranks
    ]
    still = msgspec.structs.replace(job, ranks=tuple(older))
    after = msgspec.structs.replace(before, time=before.time + 1.0, jobs=(still, *before.jobs[1:]))
    assert len(StreamEvent("change", changes(in_columns(before), in_columns(after))).packed) < 1_000

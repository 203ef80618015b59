"""Relays: which nodes have one, who reports to which, and how reports are handed on together."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from ray_sentinel.actors.coordinator.relays import Relays
from ray_sentinel.actors.hosts import RayNode
from ray_sentinel.actors.relay.actor import MOST_BYTES, ReportBatches


class Cluster:
    """Nodes, and the relays that were made and ended on them."""

    def __init__(self, size: int, found: tuple[str, ...] = ()) -> None:
        self.answers: dict[str, bool | None] = {}
        self.made: list[str] = []
        self.dropped: list[str] = []
        self.resize(size)
        self.failing = False
        self.relays = Relays(100, 40, lambda: found, self._start, self._drop)

    def resize(self, size: int) -> None:
        self.nodes = {
            f"n{number}": RayNode(
                id=f"n{number}",
                address=f"10.0.0.{number}",
                hostname="",
                alive=True,
                is_head=not number,
            )
            for number in range(size)
        }

    def _drop(self, node_id: str) -> None:
        if self.failing:
            raise ConnectionError("the control store is away")
        self.dropped.append(node_id)

    def _start(self, nodes: Sequence[RayNode]) -> dict[str, Callable[[], bool | None]]:
        self.made += [node.id for node in nodes]
        return {node.id: partial(self.answer, node.id) for node in nodes}

    def answer(self, node_id: str) -> bool | None:
        return self.answers.get(node_id, True)

    def step(self, without: frozenset[str] = frozenset()) -> tuple[str, ...]:
        self.relays.step(self.nodes, self.nodes.keys() - without)
        return self.relays.nodes

    def shares(self) -> Counter[str]:
        return Counter(map(self.relays.of, self.nodes))


def test_a_small_cluster_has_none() -> None:
    cluster = Cluster(100)
    assert cluster.step() == ()
    assert cluster.shares() == {"": 100}


def test_a_large_one_has_one_for_so_many_agents_and_none_on_the_head() -> None:
    cluster = Cluster(400)
    assert len(cluster.step()) == 10
    assert "n0" not in cluster.relays.nodes
    shares = cluster.shares()
    assert shares.keys() == set(cluster.relays.nodes)
    assert max(shares.values()) < 70
    assert cluster.step() == cluster.relays.nodes
    assert len(cluster.made) == 10


def test_agents_report_to_the_coordinator_until_a_relay_answers() -> None:
    cluster = Cluster(400)
    cluster.answers = dict.fromkeys(cluster.nodes)
    assert cluster.step() == ()
    assert cluster.shares() == {"": 400}
    cluster.answers = {}
    assert len(cluster.step()) == 10


def test_one_that_does_not_start_is_made_anew() -> None:
    cluster = Cluster(400)
    cluster.answers = dict.fromkeys(cluster.nodes, False)
    assert cluster.step() == ()
    assert sorted(cluster.dropped) == sorted(cluster.made)
    cluster.answers = {}
    assert len(cluster.step()) == 10


def test_the_first_that_answers_does_not_get_all_agents() -> None:
    cluster = Cluster(400)
    cluster.answers = dict.fromkeys(cluster.nodes)
    cluster.step()
    for number, node_id in enumerate(list(cluster.made), start=1):
        cluster.answers[node_id] = True
        cluster.step()
        assert ("" in cluster.shares()) == (number < 5)


def test_one_that_never_starts_gets_its_place_elsewhere() -> None:
    bad = Cluster(400).step()[0]
    cluster = Cluster(400)
    cluster.answers[bad] = False
    cluster.step()
    assert len(cluster.step()) == 10
    assert cluster.made.count(bad) == 1
    assert cluster.dropped == [bad]


def test_one_that_does_not_answer_any_more_is_replaced() -> None:
    cluster = Cluster(400)
    hung = cluster.step()[0]
    cluster.answers[hung] = False
    assert hung not in cluster.step()
    assert cluster.dropped == [hung]
    assert len(cluster.step()) == 10


def test_one_node_more_or_less_moves_nobody() -> None:
    cluster = Cluster(400)
    cluster.step()
    for size in (401, 400) * 5:
        cluster.resize(size)
        cluster.step()
    assert len(cluster.made) == 11
    assert cluster.dropped == []


def test_one_that_could_not_be_ended_is_ended_later() -> None:
    cluster = Cluster(400)
    lost = cluster.step()[0]
    cluster.failing = True
    with pytest.raises(ConnectionError):
        cluster.step(without=frozenset({lost}))
    cluster.failing = False
    cluster.step(without=frozenset({lost}))
    assert cluster.dropped == [lost]


def test_the_agents_of_one_that_is_gone_are_shared_out_and_no_others() -> None:
    cluster = Cluster(400)
    lost = cluster.step()[0]
    before = {node_id: cluster.relays.of(node_id) for node_id in cluster.nodes}
    new = set(cluster.step(without=frozenset({lost}))) - set(before.values())
    assert lost in cluster.dropped
    assert len(new) == 1
    moved = {key for key in before if cluster.relays.of(key) != before[key]}
    assert {key for key in moved if cluster.relays.of(key) not in new} <= {
        key for key, relay in before.items() if relay == lost
    }


def test_they_stay_while_the_cluster_is_a_little_smaller() -> None:
    cluster = Cluster(120)
    relays = cluster.step()
    cluster.resize(95)
    assert cluster.step()
    cluster.resize(80)
    assert cluster.step() == ()
    assert set(relays) <= set(cluster.dropped)


def test_those_of_a_coordinator_before_this_one_are_used_or_ended() -> None:
    first = Cluster(400)
    made = first.step()
    cluster = Cluster(400, found=made)
    assert cluster.step() == made
    small = Cluster(50, found=made)
    assert small.step() == ()
    assert {node_id for node_id in made if node_id in small.nodes} == set(small.dropped)


class CoordinatorCalls:
    """Answers calls of a relay, and remembers what each held."""

    def __init__(self) -> None:
        self.batches: list[list[bytes]] = []
        self.failure: Exception | None = None

    async def take(self, reports: list[bytes]) -> list[bytes]:
        self.batches.append(reports)
        if self.failure is not None:
            raise self.failure
        return [b"for " + report for report in reports]


def test_reports_are_handed_on_together_and_each_gets_its_receipt() -> None:
    calls = CoordinatorCalls()

    async def play() -> list[bytes]:
        batches = ReportBatches(calls.take, 0.01)
        reports = [b"%d" % number for number in range(20)]
        return await asyncio.gather(*(batches.add(one, urgent=False) for one in reports))

    assert asyncio.run(play()) == [b"for %d" % number for number in range(20)]
    assert [len(batch) for batch in calls.batches] == [20]


def test_an_urgent_one_waits_for_nobody() -> None:
    calls = CoordinatorCalls()

    async def play() -> None:
        batches = ReportBatches(calls.take, 3600.0)
        receipts = await asyncio.gather(
            batches.add(b"usual", urgent=False), batches.add(b"exit", urgent=True)
        )
        assert receipts == [b"for usual", b"for exit"]

    asyncio.run(play())
    assert calls.batches == [[b"usual", b"exit"]]


def test_no_call_is_larger_than_ray_sends_within_it() -> None:
    calls = CoordinatorCalls()

    async def play() -> None:
        batches = ReportBatches(calls.take, 0.01)
        sizes = [MOST_BYTES // 3] * 7 + [2 * MOST_BYTES]
        await asyncio.gather(*(batches.add(bytes(size), urgent=False) for size in sizes))

    asyncio.run(play())
    assert [sum(map(len, batch)) for batch in calls.batches] == [
        *(MOST_BYTES // 3 * 3 for _ in range(2)),
        MOST_BYTES // 3,
        2 * MOST_BYTES,
    ]


@pytest.mark.parametrize("failure", [ConnectionError("it is gone"), None])
def test_what_goes_wrong_all_who_wait_are_told(failure: Exception | None) -> None:
    """Also where the answers are too few: who got which is not known then."""
    calls = CoordinatorCalls()
    calls.failure = failure

    async def too_few(reports: list[bytes]) -> list[bytes]:
        return (await calls.take(reports))[1:]

    async def play() -> list[bytes | BaseException]:
        batches = ReportBatches(too_few, 0.01)
        answers = (batches.add(one, urgent=False) for one in (b"1", b"2"))
        return await asyncio.gather(*answers, return_exceptions=True)

    told = asyncio.run(play())
    assert all(isinstance(one, ConnectionError if failure else ValueError) for one in told)


def test_who_has_stopped_waiting_harms_none_of_the_others() -> None:
    calls = CoordinatorCalls()

    async def play() -> bytes:
        batches = ReportBatches(calls.take, 0.01)
        gone = asyncio.ensure_future(batches.add(b"gone", urgent=False))

        async def leave() -> None:
            gone.cancel()

        # They begin in this order.
        _, stays, _ = await asyncio.gather(
            gone, batches.add(b"stays", urgent=False), leave(), return_exceptions=True
        )
        assert gone.cancelled()
        assert calls.batches == [[b"gone", b"stays"]]
        assert isinstance(stays, bytes)
        return stays

    assert asyncio.run(play()) == b"for stays"

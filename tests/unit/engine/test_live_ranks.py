"""Who lives and where is kept beside the ranks, and follows whatever happens to them."""

from __future__ import annotations

import sys
from collections.abc import Callable

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from ray_sentinel.config import Config
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.jobs import FORGET_SECONDS
from ray_sentinel.model.identity import Node, ProcessId, Rank, RankId
from ray_sentinel.model.progress import Exit, ProcessState, Progress, RankSnapshot, Snapshot

RANKS, NODES = 6, 3
START = 1_750_000_000.0

EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["seen", "seen", "exit", "left", "joined", "anew", "forgotten"]),
        st.integers(0, NODES - 1),
        st.sets(st.integers(0, RANKS - 1)),
    ),
    max_size=30,
)


def rank(number: int, generation: int, attempt: int) -> Rank:
    node = f"n{number % NODES}"
    process = ProcessId(node, 100 * generation + number)
    return Rank(id=RankId("job", attempt, number), process=process, node=node, world_size=RANKS)


def report(number: int, ranks: list[Rank], exits: list[Rank], now: float) -> Snapshot:
    return Snapshot(
        node=Node(id=f"n{number}", host=f"h{number}", address=""),
        time=now,
        sequence=int(now - START),
        ranks=tuple(RankSnapshot(rank=one, process=ProcessState(state="S")) for one in ranks),
        exits=tuple(Exit(rank=one, at=now, order=place) for place, one in enumerate(exits)),
    )


def renamed(one: Rank, job: str, attempt: int = 0) -> Rank:
    return msgspec.structs.replace(one, id=RankId(job, attempt, one.id.rank))


def test_a_rank_that_attaches_under_another_name_is_no_more_of_the_job_that_it_seemed_of() -> None:
    """Its variables say a rendezvous, and its own word the job."""
    view = ClusterView().bind(Config())
    first, second = (renamed(rank(number, 0, 0), "vm:36663") for number in (0, NODES))
    view.apply(report(0, [first, second], [], START), START)
    told = renamed(first, "rollouts")
    view.apply(report(0, [told, second], [], START + 1), START + 1)
    assert {key: [v.rank.id.rank for v in job.live] for key, job in view.jobs.items()} == {
        ("vm:36663", 0): [NODES],
        ("rollouts", 0): [0],
    }
    view.apply(report(0, [told, renamed(second, "rollouts")], [], START + 2), START + 2)
    assert list(view.jobs) == [("rollouts", 0)]
    check(view)


def attached(one: Rank, now: float) -> Snapshot:
    """It tells of its progress itself."""
    progress = Progress(step=7, steps_recorded=7)
    seen = RankSnapshot(rank=one, process=ProcessState(state="S"), progress=progress)
    return msgspec.structs.replace(report(0, [], [], now), ranks=(seen,))


def test_one_that_attaches_anew_under_another_name_has_left_the_first() -> None:
    view = ClusterView().bind(Config())
    mine = renamed(rank(0, 0, 0), "first")
    view.apply(attached(mine, START), START)
    view.apply(attached(renamed(mine, "second"), START + 1), START + 1)
    assert [list(job.live) == [] for job in view.jobs.values()] == [True, False]
    assert view.jobs["first", 0].ranks
    check(view)


def test_a_record_that_is_unreadable_for_a_moment_ends_no_job() -> None:
    view = ClusterView().bind(Config())
    mine = renamed(rank(0, 0, 0), "first")
    guessed = renamed(mine, "vm:36663")
    for at in range(0, 40, 10):
        view.apply(attached(mine, START + at), START + at)
        assert list(view.jobs) == [("first", 0)]
        # A node on which nothing changes is heard of more rarely.
        for later in (at + 7, at + 9):
            view.apply(report(0, [guessed], [], START + later), START + later)
            view.advance(START + later)
            assert view.jobs["first", 0].ended_at is None
    # Of one that has detached, or has become another program, no record comes again.
    for at in range(40, 44):
        view.apply(report(0, [guessed], [], START + at), START + at)
        view.advance(START + at)
    assert view.jobs["first", 0].ended_at is not None
    assert [one.rank.id.job for one in view.jobs["vm:36663", 0].live] == ["vm:36663"]
    check(view)


def calls_of(work: Callable[[], None]) -> int:
    """How much ``work`` does, by the calls that it makes."""
    made = [0]

    def count(*_: object) -> None:
        made[0] += 1

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return made[0]


def test_thousands_that_attach_under_another_name_cost_no_more_than_to_find_them() -> None:
    view = ClusterView().bind(Config())

    def told(job: str, now: float) -> int:
        snapshots = []
        for number in range(128):
            ranks = [renamed(rank(8 * number + local, number, 0), job) for local in range(8)]
            snapshots.append(report(number, ranks, [], now))

        def take() -> None:
            for snapshot in snapshots:
                view.apply(snapshot, now)

        return calls_of(take)

    found = told("vm:36663", START)
    assert told("rollouts", START + 1) < 2 * found
    assert [len(job.live) for job in view.jobs.values()] == [1024]


def check(view: ClusterView) -> None:
    alive = [[seen for seen in job.ranks.values() if seen.alive] for job in view.jobs.values()]
    assert [list(job.live) for job in view.jobs.values()] == alive
    assert view.busy_nodes() == {seen.node for of_job in alive for seen in of_job}


def seen_again(view: ClusterView, node: int, chosen: list[Rank], now: float) -> None:
    """A report with some of a node's ranks, without which no other there lives on."""
    view.apply(report(node, chosen, [], now), now)
    there = {one.process for one in chosen}
    for job in view.jobs.values():
        assert all(v.rank.process in there for v in job.live if v.node == f"n{node}")


def leaves(view: ClusterView, node: str, now: float) -> None:
    if node in view.nodes:
        view.nodes[node].leave(now, "", expected=True)
    view.advance(now)


@given(events=EVENTS, split=st.booleans())
@example(events=[("seen", 0, {0}), ("seen", 0, set()), ("seen", 0, {0})], split=False)
def test_who_lives_follows_whatever_happens(
    events: list[tuple[str, int, set[int]]], split: bool
) -> None:
    view, now, generation = ClusterView().bind(Config()), START, 0
    for what, node, numbers in events:
        now += 1.0
        # Nodes that count restarts for themselves: their ranks are joined under one attempt.
        attempt = node if split else 0
        here = [rank(n, generation, attempt) for n in range(RANKS) if n % NODES == node]
        chosen = [one for one in here if one.id.rank in numbers]
        match what:
            case "seen":
                seen_again(view, node, chosen, now)
            case "exit":
                rest = [one for one in here if one not in chosen]
                view.apply(report(node, rest, chosen, now), now)
            case "left":
                leaves(view, f"n{node}", now)
            case "joined" if f"n{node}" in view.nodes:
                view.nodes[f"n{node}"].join()
            case "anew":
                generation += 1
            case "forgotten":
                now += FORGET_SECONDS + 1.0
                for job in view.jobs.values():
                    job.forget_replaced(now)
        check(view)

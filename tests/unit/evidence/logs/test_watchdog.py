# ruff: noqa: E501 - log lines are as long as they are
"""Who lags, from the watchdogs' numbers."""

from __future__ import annotations

from ray_sentinel.evidence.logs.errors.watchdog import RankWork, laggards, read_work


def work(
    rank: int, seq: int, enqueued: int, completed: int, group: str = "0", op: str = ""
) -> RankWork:
    return RankWork(
        rank=rank, group=group, seq=seq, enqueued=enqueued, completed=completed, operation=op
    )


def names(*works: RankWork, world: int | None = None) -> list[int]:
    return list(laggards(works, world))


def test_lines_of_several_versions() -> None:
    old = read_work(
        "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1) ran",
        None,
    )
    assert old is not None
    assert (old.rank, old.seq, old.operation, old.size) == (3, 5, "ALLREDUCE", "1/1")
    middle = read_work(
        "[PG 1 Rank 0] detected by watchdog at work: 7753, last enqueued NCCL work: 7755, last completed NCCL work: 7752.",
        4,
    )
    assert middle is not None
    assert (middle.rank, middle.group, middle.enqueued, middle.completed) == (4, "1", 7755, 7752)
    new = read_work(
        "[PG ID 0 PG GUID 0(default_pg) Rank 1] failure detected by watchdog at work sequence id: 12 PG status: last enqueued work: 12, last completed work: 11",
        None,
    )
    assert new is not None
    assert (new.rank, new.seq, new.enqueued, new.completed) == (1, 12, 12, 11)
    assert read_work("nothing of the kind", 1) is None


def test_groups_of_the_version_that_prints_their_description_are_judged_apart() -> None:
    def told(rank: int, group: str, number: int) -> RankWork:
        line = f"[rank{rank}]:[E318 13:21:42.59 ProcessGroupNCCL.cpp:1709] [PG {group} Rank {rank % 5}] Timeout at NCCL work: {number}, last enqueued NCCL work: {number}, last completed NCCL work: {number - 1}."
        found = read_work(line, None)
        assert found is not None
        return found

    first = [told(rank, "2 (dp group)", 900) for rank in range(5)]
    second = [told(rank, "3 (tp)", 700) for rank in range(5, 8)]
    assert {(work.rank, work.group) for work in second} == {(5, "3"), (6, "3"), (7, "3")}
    assert names(*first, *second) == []


def test_who_never_enqueued() -> None:
    assert names(work(0, 10, 11, 9), work(1, 10, 11, 9), work(2, 9, 9, 8)) == [2]


def test_who_completed_less() -> None:
    assert names(work(0, 10, 11, 9), work(1, 10, 11, 9), work(2, 10, 11, 8)) == [2]


def test_all_alike_names_nobody() -> None:
    assert names(*(work(rank, 10, 11, 9) for rank in range(8)), world=8) == []


def test_who_said_nothing() -> None:
    assert names(*(work(rank, 10, 11, 9) for rank in range(8) if rank != 3), world=8) == [3]


def test_many_silent_ranks_name_nobody() -> None:
    assert names(work(0, 10, 11, 9), work(1, 10, 11, 9), world=8) == []


def test_another_operation() -> None:
    assert names(
        work(0, 10, 11, 9, op="ALLREDUCE"),
        work(1, 10, 11, 9, op="ALLREDUCE"),
        work(2, 10, 11, 9, op="BROADCAST"),
    ) == [2]


def test_half_of_the_ranks_are_never_named() -> None:
    works = [work(rank, 10, 11, 9) for rank in range(2)] + [
        work(rank, 9, 9, 8) for rank in (2, 3, 4)
    ]
    assert len(names(*works)) <= 2


def test_who_was_not_heard_is_not_named() -> None:
    others = [work(rank, 10, 11, 9) for rank in range(8) if rank != 3]
    assert list(laggards(others, 8, {0, 1, 2, 4, 5, 6, 7})) == []
    assert list(laggards(others, 8, set(range(8)))) == [3]
    assert list(laggards(others[:2], None, {0, 1, 2})) == [2]
    assert list(laggards(others[:2], 10**17, None)) == []

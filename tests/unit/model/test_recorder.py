"""Who waits for whom by the recorders, for people."""

from __future__ import annotations

from ray_sentinel.model.recorder import RecorderWait, describe_waits


def waits(ranks: range, members: range, operation: str) -> list[RecorderWait]:
    """Each of the ranks waits for all other members."""
    return [
        RecorderWait(
            rank=rank, operation=operation, waits_for=tuple(m for m in members if m != rank)
        )
        for rank in ranks
    ]


def test_ranks_that_wait_for_each_other_are_told_together() -> None:
    found = describe_waits(waits(range(64), range(64), "all_reduce"))
    assert found == [(list(range(64)), "for each other in all_reduce")]


def test_one_that_is_accused_is_told_beside_them() -> None:
    found = describe_waits(waits(range(1, 4), range(4), "all_reduce"))
    assert found == [([1, 2, 3], "for each other and for rank 0 in all_reduce")]


def test_each_operation_and_whom_it_waits_for_is_a_group_of_its_own() -> None:
    found = describe_waits(
        [
            RecorderWait(rank=0, operation="send", waits_for=(1,)),
            RecorderWait(rank=4, operation="all_gather", waits_for=(5, 6, 7)),
            RecorderWait(rank=2, operation="send", waits_for=(1,)),
            RecorderWait(rank=3, operation="all_reduce"),
        ]
    )
    assert found == [
        ([0, 2], "for rank 1 in send"),
        ([4], "for ranks 5-7 in all_gather"),
        ([3], "for their peers in all_reduce"),
    ]

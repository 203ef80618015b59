"""Jobs whose groups are pairs, or single ranks: who holds the others up, and who only seems to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ray_sentinel.model.recorder import RecorderFacts
from ray_sentinel.waitgraph.recorder import explain

WORLD, OWN = 0, 1
"""Groups, as each rank numbers them."""
Group = tuple[int, Sequence[int], str]
"""Number, ranks, and name."""


def call(group: Group, number: int, *, done: bool, size: int = 4) -> dict[str, Any]:
    return {
        "pg_id": group[0],
        "process_group": [group[2], "tensor"],
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": "nccl:all_reduce",
        "input_sizes": [[size]],
        "input_dtypes": ["Float"],
        "output_sizes": [[size]],
        "output_dtypes": ["Float"],
        "state": "completed" if done else "scheduled",
        "retired": done,
        "is_p2p": False,
    }


def dump(groups: Sequence[Group], *calls: dict[str, Any]) -> bytes:
    configs = {
        str(number): {"name": name, "desc": "tensor", "ranks": str(list(ranks))}
        for number, ranks, name in groups
    }
    rows = [{"record_id": number, **row} for number, row in enumerate(calls)]
    return msgspec.json.encode({"version": "2.9", "pg_config": configs, "entries": rows})


def in_a_pair(rank: int, calls: int, size: int = 4) -> bytes:
    """A rank of a job of two pairs: five calls have ended, a sixth has not."""
    first = rank // 2 * 2
    group = (WORLD, (first, first + 1), str(first))
    made = [call(group, number, done=True) for number in range(1, 6)]
    return dump([group], *made, *[call(group, 6, done=False, size=size)] * (calls > 5))


def named(facts: RecorderFacts) -> list[int]:
    return [culprit.rank for culprit in facts.culprits]


def test_one_that_stands_where_all_its_equals_stand_is_not_accused() -> None:
    """Ranks 0, 2 and 3 wait for input, and rank 1 has called once too often."""
    facts = explain({r: in_a_pair(r, 6 if r == 1 else 5) for r in range(4)}, world_size=4)
    assert named(facts) == []
    assert "not ranks 2-3 in the same position and at the same place" in facts.evidence[0]


def test_of_two_unlike_calls_the_one_is_wrong_that_an_equal_did_not_make() -> None:
    """Rank 3 left no dump, so rank 2 alone says what is usual."""
    facts = explain({r: in_a_pair(r, 6, 8 if r == 0 else 4) for r in range(3)}, world_size=4)
    assert named(facts) == [0], facts.evidence
    assert "where 1 of 1 ranks in the same position called" in facts.evidence[0]


def test_one_that_is_stuck_in_a_group_of_its_own_is_named() -> None:
    """As where tensors are not split: each rank's tensor group is itself."""
    world = (WORLD, range(4), "0")
    dumps = {}
    for rank in range(4):
        own = (OWN, (rank,), str(rank + 1))
        calls = [call(world, 1, done=True), call(own, 1, done=rank != 3)]
        dumps[rank] = dump([world, own], *calls, *[call(world, 2, done=False)] * (rank != 3))
    facts = explain(dumps, world_size=4)
    assert (named(facts), facts.kind) == ([3], "device-stuck"), facts.evidence

"""Groups that no dump lists, as of gloo, with a member that left none: it may be in any of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ray_sentinel.waitgraph.recorder import explain

TENSOR, DATA, OTHER_DATA = "3", "4", "5"
"""Of ranks 4 and 5; of ranks 0, 2 and 4; of ranks 1, 3 and 5."""
MEMBERS = {TENSOR: 2, DATA: 3, OTHER_DATA: 3}


def entry(number: int, group: str, op: str, *, done: bool) -> dict[str, Any]:
    gathers = op == "all_gather"
    return {
        "record_id": number,
        "pg_id": int(group),
        "process_group": [group, "undefined"],
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": f"gloo:{op}",
        "input_sizes": [[24]],
        "output_sizes": [[MEMBERS[group], 24]] if gathers else [[24]],
        "input_dtypes": ["Float"],
        "output_dtypes": ["Float"],
        "state": "scheduled",
        "is_p2p": False,
        "retired": done,
    }


def dump(waits_in: str, op: str, *groups: str) -> bytes:
    """A rank that has ended three calls in each of its groups, and waits in the fourth of one."""
    ended = [entry(n, group, "all_reduce", done=True) for n in (1, 2, 3) for group in groups]
    return json.dumps(
        {"version": "2.10", "entries": [*ended, entry(4, waits_in, op, done=False)]}
    ).encode()


@pytest.mark.parametrize(
    ("op", "world_size"), [("all_gather", None), ("all_gather", 6), ("all_reduce", 6)]
)
def test_who_waits_for_the_one_that_left_no_dump_is_not_named(
    op: str, world_size: int | None
) -> None:
    data, other = dump(DATA, "all_reduce", DATA), dump(OTHER_DATA, "all_reduce", OTHER_DATA)
    dumps = {0: data, 1: other, 2: data, 3: other, 4: dump(TENSOR, op, TENSOR, DATA)}
    facts = explain(dumps, world_size=world_size)
    assert [culprit.rank for culprit in facts.culprits] == [], facts.evidence
    assert facts.kind != "running"

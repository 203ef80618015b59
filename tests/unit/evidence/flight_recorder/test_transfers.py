"""Transfers that do not fit, in pipelines of two stages that run side by side."""

from __future__ import annotations

import msgspec

from ray_sentinel.waitgraph.recorder import explain


def dump(rank: int, size: int, *, hangs: bool) -> bytes:
    """Six sends to the next rank, or receives from the one before; the last one is of ``size``."""
    pair, peer = rank // 2, rank ^ 1
    title = "nccl:send 0->1" if rank % 2 == 0 else "nccl:recv 1<-0"
    rows = [
        {
            "record_id": number,
            "pg_id": 0,
            "process_group": [f"{pair}", "PIPE"],
            "collective_seq_id": 0,
            "p2p_seq_id": number,
            "op_id": number,
            "profiling_name": title,
            "time_created_ns": number * 10**9,
            "input_sizes": [[size if number == 6 else 4]],
            "input_dtypes": ["Float"],
            "output_sizes": [[size if number == 6 else 4]],
            "output_dtypes": ["Float"],
            "state": "scheduled" if hangs and number == 6 else "completed",
            "retired": not (hangs and number == 6),
            "is_p2p": True,
        }
        for number in range(1, 7)
    ]
    groups = {"0": {"name": f"{pair}", "desc": "PIPE", "ranks": str(sorted((rank, peer)))}}
    return msgspec.json.encode({"version": "2.9", "pg_config": groups, "entries": rows})


def test_the_end_whose_size_is_not_that_of_its_stage_is_named() -> None:
    for wrong in (0, 1):
        dumps = {r: dump(r, 8 if r == wrong else 4, hangs=r < 2) for r in range(6)}
        found = explain(dumps, world_size=6)
        assert [culprit.rank for culprit in found.culprits] == [wrong], found.evidence
        assert "where 2 of 2 ranks in the same position called" in found.culprits[0].reason


def test_a_single_other_pipeline_does_not_say_which_end_is_wrong() -> None:
    dumps = {r: dump(r, 8 if r == 0 else 4, hangs=r < 2) for r in range(4)}
    assert explain(dumps, world_size=4).culprits == ()

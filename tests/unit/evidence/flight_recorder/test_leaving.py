"""Who is on its way out of a call that its peers have left: a device may have stopped there, but
gloo has none."""

from __future__ import annotations

import msgspec
import pytest

from ray_sentinel.waitgraph.recorder import explain


def dump(library: str, calls: int, done: int) -> bytes:
    rows = [
        {
            "record_id": number,
            "pg_id": 0,
            "process_group": ["0", "default_pg"],
            "collective_seq_id": number,
            "p2p_seq_id": 0,
            "op_id": number,
            "profiling_name": f"{library}:all_reduce",
            "input_sizes": [[4]],
            "input_dtypes": ["Float"],
            "output_sizes": [[4]],
            "output_dtypes": ["Float"],
            "state": "completed" if number <= done else "scheduled",
            "retired": number <= done,
            "is_p2p": False,
        }
        for number in range(1, calls + 1)
    ]
    groups = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}}
    return msgspec.json.encode({"version": "2.9", "pg_config": groups, "entries": rows})


@pytest.mark.parametrize(("library", "kind"), [("nccl", "device-stuck"), ("gloo", "not-enqueued")])
def test_one_that_its_peers_have_left_behind(library: str, kind: str) -> None:
    peers = {rank: dump(library, 6, 5) for rank in range(3)}
    found = explain(peers | {3: dump(library, 5, 4)}, world_size=4)
    assert ([culprit.rank for culprit in found.culprits], found.kind) == ([3], kind)


def test_a_device_that_stopped_in_the_last_call_is_named_though_nobody_waits_for_it() -> None:
    """Its peers save a checkpoint, say: they have nothing pending."""
    peers = {rank: dump("nccl", 5, 5) for rank in range(3)}
    found = explain(peers | {3: dump("nccl", 5, 4)}, world_size=4)
    assert ([culprit.rank for culprit in found.culprits], found.kind) == ([3], "device-stuck")


def test_one_that_is_late_and_that_nobody_waits_for_is_not_named() -> None:
    """Its peers are in no call, and have a group of their own, so none of them is its equal."""
    peers = {rank: msgspec.json.decode(dump("gloo", 5, 5)) for rank in range(3)}
    for peer in peers.values():
        peer["pg_config"]["1"] = {"name": "1", "desc": "own", "ranks": "[0, 1, 2]"}
    dumps = {rank: msgspec.json.encode(peer) for rank, peer in peers.items()}
    found = explain(dumps | {3: dump("gloo", 5, 4)}, world_size=4)
    assert (found.culprits, found.kind) == ((), "cannot-tell")

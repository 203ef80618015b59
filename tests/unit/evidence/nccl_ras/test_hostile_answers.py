"""What whoever holds the RAS port may say, read in time that grows with its length only."""

from __future__ import annotations

import json
import time

import msgspec
import pytest

from ray_sentinel.errors import InputError
from ray_sentinel.evidence.nccl_ras.load import read

SIZE = 256 << 10
SECONDS = 3.0
"""Linear reading takes some tenths; what grew with the square took tens of seconds."""


@pytest.mark.parametrize(
    ("front", "unit"),
    [
        ("", '{"a" 1},'),
        ('{"a":[', "\\"),
        ('{"a":["', '\\"'),
        *((('{"a":['), unit) for unit in ('"', "{", "[", "[]", "1 ", '"x" ', "nan")),
        ("Communicators...", "1 "),
        ("#1-1 (a) DEAD\n", "  Rank 1 -- GPU 1 managed by process 3 on node a\n"),
    ],
)
def test_time_grows_with_the_answer(front: str, unit: str) -> None:
    data = (front + unit * (SIZE // len(unit))).encode()
    began = time.thread_time()
    try:
        read(data)
    except InputError:
        pass
    assert time.thread_time() - began < SECONDS


@pytest.mark.parametrize("number", [1 << 63, (1 << 64) - 1, 1 << 64, 10**20 - 1, -(1 << 64)])
def test_a_number_that_nothing_holds_is_none(number: int) -> None:
    """A snapshot with it could not be written."""
    member = {"rank": 0, "host": "h", "pid": number, "nvml_dev": number, "cuda_dev": number}
    member["collective_counts"] = {"AllReduce": number}
    dead = {"rank": 1, "host": "h", "pid": number, "considered_dead": True}
    answer = {
        "nccl_version": "2.28.7",
        "communicators_count": number,
        "communicators": [
            {"hash": "a", "size": number, "ranks": [member], "missing_ranks": [dead]}
        ],
        "ras": {"timeouts_count": number, "collection_time_sec": number},
    }
    peer = {"host": "h", "pid": 7, "nvml_devs": [number, 3]}
    event = {"event": "PEER_DEAD", "peer": peer}
    (poll,) = read("\n".join(map(json.dumps, (answer, event))).encode())
    assert [process.gpus for process in poll.dead] == [(3,)]
    (communicator,) = poll.communicators
    assert [(m.rank, m.pid, m.counts) for m in communicator.members] == [
        (0, None, {}),
        (1, None, {}),
    ]
    msgspec.msgpack.encode(poll)

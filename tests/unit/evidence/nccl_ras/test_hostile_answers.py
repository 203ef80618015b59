"""What whoever holds the RAS port may say, read in time that grows with its length only."""

from __future__ import annotations

import time

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

"""Dumps are read in a child: whatever they hold costs them alone."""

from __future__ import annotations

import os
import pickle
import signal
import time
from collections.abc import Iterator

import pytest

from bench.flight_recorder import large_job
from ray_sentinel.capture import dump_reducer
from ray_sentinel.capture.dump_reducer import DumpReducer
from ray_sentinel.errors import InputError
from ray_sentinel.evidence.flight_recorder.reduced import reduce

SECONDS = 20.0
DUMPS = dict(large_job(16, 200))
# An opcode of 5 bytes that makes the memo of C's unpickler twice 2**31 places long.
HUGE_MEMO = b"\x80\x02]r\xff\xff\xff\x7f."
# Each opcode is one byte, and its set takes 216.
MANY_SETS = b"\x80\x04]" + b"(" + b"\x8f" * (1 << 20) + b"e."


@pytest.fixture
def reducer() -> Iterator[DumpReducer]:
    made = DumpReducer()
    yield made
    made.close()


def test_it_says_what_is_said_here_and_one_child_reads_all(reducer: DumpReducer) -> None:
    for data in DUMPS.values():
        assert reducer.reduce(data, SECONDS) == reduce(data)
        child = reducer.child
    assert child is not None
    assert child is reducer.child
    reducer.close()
    assert child.poll() is not None


@pytest.mark.parametrize("hostile", [HUGE_MEMO, MANY_SETS], ids=["memo", "sets"])
def test_a_dump_that_asks_for_gigabytes_costs_itself_alone(
    reducer: DumpReducer, hostile: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dump_reducer, "MAX_MEMORY", 200 << 20)
    try:
        answer = reducer.reduce(hostile, SECONDS)
    except InputError:
        answer = b""
    assert len(answer) < 1000
    assert reducer.reduce(DUMPS[0], SECONDS) == reduce(DUMPS[0])


def test_a_child_that_is_killed_or_hangs_costs_one_dump(reducer: DumpReducer) -> None:
    reducer.reduce(DUMPS[0], SECONDS)
    assert reducer.child is not None
    os.kill(reducer.child.pid, signal.SIGKILL)
    with pytest.raises(InputError, match="could not be read"):
        reducer.reduce(DUMPS[1], SECONDS)
    assert reducer.reduce(DUMPS[1], SECONDS) == reduce(DUMPS[1])
    os.kill(reducer.child.pid, signal.SIGSTOP)
    begun = time.monotonic()
    with pytest.raises(InputError, match="there was no time left"):
        reducer.reduce(DUMPS[2], 0.3)
    assert time.monotonic() - begun < SECONDS
    assert reducer.reduce(DUMPS[2], SECONDS) == reduce(DUMPS[2])


def test_too_large_a_dump_is_not_read_and_says_what_to_do(
    reducer: DumpReducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dump_reducer, "MAX_ANSWER", 1000)
    with pytest.raises(InputError, match="lower TORCH_FR_BUFFER_SIZE"):
        reducer.reduce(DUMPS[0], SECONDS)
    assert reducer.child is None


def test_a_class_in_a_dump_is_refused_there_too(reducer: DumpReducer) -> None:
    from ray_sentinel.evidence.flight_recorder.reduced import read

    small = reducer.reduce(pickle.dumps({"entries": [os.getcwd]}, protocol=2), SECONDS)
    with pytest.raises(InputError, match="was refused: it asks for"):
        read(0, small)

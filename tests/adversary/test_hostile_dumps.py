"""Flight-recorder dumps that a job made to harm their reader: each costs itself alone."""

from __future__ import annotations

import pickle
import random
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_sentinel import process
from ray_sentinel.capture.dump_reducer import GROWTH, SPARE_MEMORY, DumpReducer
from ray_sentinel.cli.recorder_files import find
from ray_sentinel.errors import InputError
from ray_sentinel.evidence.flight_recorder.reduced import history, read, reduce

ROW = {
    "record_id": 0,
    "pg_id": 0,
    "process_group": ("0", "default_pg"),
    "collective_seq_id": 1,
    "p2p_seq_id": 0,
    "op_id": 1,
    "profiling_name": "nccl:all_reduce",
    "input_sizes": [[3, 4]],
    "input_dtypes": ["Float"],
    "output_sizes": [[3, 4]],
    "output_dtypes": ["Float"],
    "state": "scheduled",
    "is_p2p": False,
    "retired": False,
}
GOOD = pickle.dumps(
    {"version": "2.9", "pg_config": {}, "pg_status": {}, "entries": [ROW] * 20}, protocol=2
)
LARGE = 2**31 - 1
MEMORY = {
    "long binput": b"\x80\x02Nr" + struct.pack("<I", LARGE) + b".",
    "smaller long binput": b"\x80\x02Nr" + struct.pack("<I", 1 << 25) + b".",
    "text put": b"\x80\x02Np%d\n." % LARGE,
    "long string": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 33) + b"x.",
    "long bytes": b"\x80\x04\x8e" + struct.pack("<Q", 1 << 33) + b"x.",
    "long bytearray": b"\x80\x05\x96" + struct.pack("<Q", 1 << 33) + b"x.",
    "long integer": b"\x80\x02\x8b" + struct.pack("<i", LARGE) + b"x.",
    "long frame": b"\x80\x04\x95" + struct.pack("<Q", 1 << 40) + b"N.",
    "sets": b"\x80\x04(" + b"\x8f" * (1 << 20) + b"l.",
    "deep lists": b"\x80\x02" + b"]" * (1 << 20) + b"a" * ((1 << 20) - 1) + b".",
    "deep tuples": b"\x80\x02)" + b"\x85" * (1 << 20) + b".",
    "deep JSON": b'{"entries": ' + b"[" * (1 << 20),
}
TIME = {
    "a key of twice twice twice ...": b"\x80\x02})" + b"2\x86" * 60 + b"Ns.",
    "a group's name of twice twice twice ...": (
        b"\x80\x02}(X\x09\x00\x00\x00pg_config}X\x01\x00\x00\x000}X\x04\x00\x00\x00name)"
        + b"2\x86" * 60
        + b"sssX\x07\x00\x00\x00entries]u."
    ),
}


@pytest.fixture(scope="module")
def reducer() -> Iterator[DumpReducer]:
    made = DumpReducer()
    yield made
    made.close()


def peak(reducer: DumpReducer) -> int:
    """Most bytes that the child has had in memory; 0 where it has died."""
    if reducer.child is None:
        return 0
    text = Path(f"/proc/{reducer.child.pid}/status").read_text()
    line = next(line for line in text.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) << 10


@pytest.mark.parametrize("name", MEMORY)
def test_a_dump_takes_no_more_memory_than_one_of_its_size_may(
    name: str, reducer: DumpReducer
) -> None:
    data = MEMORY[name]
    reducer.reduce(GOOD, 60.0)
    before = peak(reducer)
    try:
        with pytest.raises(InputError):
            read(0, reducer.reduce(data, 60.0))
    finally:
        # What it had reserved before, and the dump itself, may count as well.
        assert peak(reducer) < before + SPARE_MEMORY + GROWTH * len(data) + (32 << 20)
    assert read(0, reducer.reduce(GOOD, 60.0)) == read(0, GOOD)


@pytest.mark.parametrize("name", TIME)
def test_a_dump_takes_no_more_time_than_it_is_given(name: str, reducer: DumpReducer) -> None:
    reducer.reduce(GOOD, 60.0)
    begun = time.monotonic()
    with pytest.raises(InputError, match=r"no time left|memory|damaged|neither"):
        read(0, reducer.reduce(TIME[name], 1.0))
    assert time.monotonic() - begun < 30
    assert read(0, reducer.reduce(GOOD, 60.0)) == read(0, GOOD)


@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_dump_is_read_in_part_or_refused(seed: int, reducer: DumpReducer) -> None:
    dice = random.Random(seed)
    for _ in range(150):
        data = bytearray(GOOD)
        for _ in range(dice.choice([1, 1, 2, 8])):
            place = dice.randrange(2, len(data))
            change = dice.choice(["byte", "cut", "repeat", "insert"])
            if change == "byte":
                data[place] = dice.randrange(256)
            elif change == "cut":
                del data[place : place + dice.randrange(1, 40)]
            elif change == "repeat":
                data[place:place] = data[place : place + dice.randrange(1, 40)] * dice.randrange(
                    1, 9
                )
            else:
                data[place:place] = dice.randbytes(dice.randrange(1, 9))
        try:
            small = reducer.reduce(bytes(data), 20.0)
            read(0, small)
            history(small)
        except InputError as error:
            assert str(error)
    assert peak(reducer) < 400 << 20


def test_the_command_names_the_file_and_explains_the_others(tmp_path: Path) -> None:
    for rank in range(4):
        (tmp_path / f"_dump_{rank}").write_bytes(GOOD)
    (tmp_path / "_dump_2").write_bytes(MEMORY["long binput"])
    done = subprocess.run(
        process.python_module("ray_sentinel", "explain", "flight-recorder", str(tmp_path)),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    said = done.stdout + done.stderr
    assert "_dump_2" in said, said
    assert "memory" in said
    assert "Traceback" not in said


def test_files_are_read_in_brief_first_and_whole_when_they_are_looked_at_again(
    tmp_path: Path,
) -> None:
    for rank in range(4):
        (tmp_path / f"_dump_{rank}").write_bytes(GOOD)
    (tmp_path / "_dump_3").write_bytes(reduce(GOOD))
    dumps = find([str(tmp_path)]).dumps()
    for rank in (2, 0, 1, 3):
        first, second = dumps[rank], dumps[rank]
        assert read(rank, first) == read(rank, second) == read(rank, GOOD)
        assert len(history(second)) == len(history(GOOD))
    assert history(find([str(tmp_path)]).dumps()[0]) == []
    assert len(history(find([str(tmp_path)]).dumps(whole=True)[0])) == len(history(GOOD))

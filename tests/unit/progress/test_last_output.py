"""The end of a rank's standard error."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ray_sentinel.progress.last_output import LOOKS, LastOutput
from tests.support.waiting import eventually

LONG = 30.0
Hanging = Callable[..., threading.Event]


def make(proc: Path, pid: int, log: Path) -> tuple[int, int]:
    (proc / str(pid) / "fd").mkdir(parents=True)
    os.symlink(log, proc / str(pid) / "fd" / "2")
    return pid, 1


def test_the_end_is_what_was_written_lately(tmp_path: Path) -> None:
    log = tmp_path / "rank.err"
    log.write_text("long ago: Connection closed by peer\n")
    key = make(tmp_path / "proc", 7, log)
    outputs = LastOutput(tmp_path / "proc", patience=LONG)
    for _ in range(LOOKS):
        outputs.note([key])
    log.open("a").write("ValueError: now\n")
    assert outputs.read(key) == "ValueError: now\n"


def test_a_file_of_several_ranks_tells_nothing_of_one(tmp_path: Path) -> None:
    log = tmp_path / "all.err"
    log.write_text("")
    proc = tmp_path / "proc"
    keys = [make(proc, 7, log), make(proc, 8, log)]
    outputs = LastOutput(proc, patience=LONG)
    outputs.note(keys)
    log.write_text("ValueError\n")
    assert outputs.read(keys[0]) == ""


def test_what_is_no_file_or_another_file_by_now_is_not_read(tmp_path: Path) -> None:
    proc, log = tmp_path / "proc", tmp_path / "rank.err"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    log.write_text("")
    piped, filed = make(proc, 7, pipe), make(proc, 8, log)
    outputs = LastOutput(proc, patience=LONG)
    outputs.note([piped, filed, (9, 1)])
    log.rename(tmp_path / "rotated")
    log.write_text("another's\n")
    assert outputs.read(piped) == ""
    assert outputs.read(filed) == ""
    outputs.forget([])
    assert outputs.read(filed) == ""


def test_a_file_system_that_hangs_does_not_hold_up_the_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hanging: Hanging
) -> None:
    proc, log = tmp_path / "proc", tmp_path / "rank.err"
    log.write_text("ValueError\n")
    key = make(proc, 7, log)
    gate, calls, real = hanging("note"), [], os.stat

    def hang(path: str) -> os.stat_result:
        calls.append(path)
        gate.wait(LONG)
        return real(path)

    outputs = LastOutput(proc)
    with monkeypatch.context() as patch:
        patch.setattr("ray_sentinel.progress.last_output.os.stat", hang)
        outputs.note([key])
        outputs.note([key])
        assert outputs.read(key) == ""
        gate.set()
    assert len(calls) <= 1, "no second thread is sent after the first"


def test_a_file_that_hangs_when_it_is_read_tells_it_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hanging: Hanging
) -> None:
    proc, log = tmp_path / "proc", tmp_path / "rank.err"
    log.write_text("")
    key = make(proc, 7, log)
    gate, real = hanging(key), os.open

    def hang(path: str, flags: int) -> int:
        gate.wait(LONG)
        return real(path, flags)

    outputs = LastOutput(proc)
    outputs.note([key])
    log.write_text("ValueError\n")
    with monkeypatch.context() as patch:
        patch.setattr("ray_sentinel.progress.last_output.os.open", hang)
        assert outputs.read(key) is None
        assert outputs.read(key) is None
    monkeypatch.undo()
    gate.set()
    assert eventually(lambda: outputs.read(key), "it is read") == "ValueError\n"

"""An event log whose writer is killed at any step of packing a segment has each event once."""

from __future__ import annotations

import gzip
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ray_sentinel.actors.coordinator.event_log import log as event_log
from ray_sentinel.actors.coordinator.event_log.log import EventLog, read, read_segment, segments
from ray_sentinel.engine.events import Tick
from ray_sentinel.errors import InputError


def write(folder: Path, first: int, count: int) -> None:
    log = EventLog(folder, segment_bytes=100)
    for number in range(first, first + count):
        log.append(Tick(time=float(number)), ())
    log.close()


def times(folder: Path) -> list[float]:
    return [event.time for event in read(folder)[1]]


def killing(do: Callable[..., Any], *, after: bool, folder: Path) -> Callable[..., Any]:
    """``do``, and this process is killed before or after its first call for a packed segment."""

    def instead(*args: Any, **kwargs: Any) -> Any:
        begun = any(path.name.endswith((".part", ".gz")) for path in folder.iterdir())
        result = do(*args, **kwargs) if after or not begun else None
        if begun or after:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return instead


STEPS = [("os.fsync", False), ("os.fsync", True), ("os.replace", False), ("os.replace", True)]
STEPS += [("pathlib.Path.unlink", False), ("shutil.copyfileobj", True)]


@pytest.mark.parametrize(("step", "after"), STEPS)
def test_each_event_is_there_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, after: bool
) -> None:
    folder = tmp_path / "events"
    write(folder, 0, 3)
    before = len(times(folder))
    pid = os.fork()
    if not pid:
        where, _, name = step.rpartition(".")
        module: Any = {"os": os, "shutil": shutil, "pathlib.Path": Path}[where]
        monkeypatch.setattr(
            module, name, killing(getattr(module, name), after=after, folder=folder)
        )
        write(folder, before, 200)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
    told = times(folder)
    assert told == [float(number) for number in range(len(told))]
    assert len(told) >= before

    write(folder, len(told), 200)
    assert times(folder) == [float(number) for number in range(len(told) + 200)]
    names = {path.name for path in folder.iterdir()}
    assert not [name for name in names if name.endswith(".part")]
    packed = {name.removesuffix(".gz") for name in names if name.endswith(".gz")}
    assert not packed & names, "a segment is there twice"


def test_both_forms_of_a_segment_are_one(tmp_path: Path) -> None:
    write(tmp_path, 0, 3)
    (path,) = segments(tmp_path)
    # Whole as it should be, or torn by a host that lost its power: the other one is whole.
    for data in (gzip.compress(path.read_bytes()), b""):
        path.with_name(path.name + ".gz").write_bytes(data)
        assert segments(tmp_path) == [path]
        assert times(tmp_path) == [0.0, 1.0, 2.0]


def test_what_is_no_segment_is_left_alone(tmp_path: Path) -> None:
    for name in ("notes.jsonl", "1.jsonl", "000001.jsonl.bak", "²²²²²².jsonl", "x.part"):
        (tmp_path / name).write_text("mine")
    log = EventLog(tmp_path, segment_bytes=1, max_bytes=1)
    for number in range(5):
        log.append(Tick(time=float(number)), ())
    log.close()
    for name in ("notes.jsonl", "1.jsonl", "000001.jsonl.bak", "²²²²²².jsonl", "x.part"):
        assert (tmp_path / name).read_text() == "mine"


def test_a_segment_that_unpacks_without_end_costs_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, "MOST_UNPACKED", 8 << 20)
    path = tmp_path / "000001.jsonl.gz"
    with gzip.open(path, "wb") as file:
        for _ in range(64):
            file.write(b" " * (1 << 20))
    with pytest.raises(InputError, match="holds more than 8 MiB"):
        read_segment(path)

"""The text of a program is read as its process sees it, or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_sentinel.capture import program_text
from ray_sentinel.capture.program_text import ProgramFile, ProgramText, read_program
from ray_sentinel.capture.tracer import Traced
from ray_sentinel.evidence.stacks.frames.blocks import PythonSource
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.stacks import Frame, StackTrace, ThreadStack
from ray_sentinel.progress.proc.proc_stat import read_stat

TEXT = "def train():\n    for step in range(9):\n        work(step)\n    finish()\n"
WORK, FINISH = "train (job.py:3)", "train (job.py:4)"


@pytest.fixture
def process(tmp_path: Path) -> Iterator[ProcessId]:
    """One that began after the file was written, with its folder as its current one."""
    (tmp_path / "job.py").write_text(TEXT)
    long_ago = time.time() - 3600
    os.utime(tmp_path / "job.py", (long_ago, long_ago))
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, cwd=tmp_path)
    stat = read_stat(child.pid)
    assert stat is not None
    yield ProcessId("n", child.pid, stat.start)
    assert child.stdin is not None
    child.stdin.close()
    assert child.wait(20) is not None


def run(process: ProcessId, path: Path | str, *, line: int = 3, native: bool = False) -> Traced:
    frames = (Frame("train", "job.py", line, native),)
    trace = StackTrace(
        process=process,
        tool="py-spy",
        at=0.0,
        threads=(ThreadStack(frames=frames, main=True),),
        sources={"job.py": str(path)},
    )
    return Traced(tool="py-spy", trace=trace)


def blocks(text: ProgramText, *runs: Traced) -> dict[str, tuple[str, ...]]:
    (found,) = text.add({runs[0].trace.process: runs}).values()
    return found[0].trace.blocks


def test_the_places_of_a_process(process: ProcessId, tmp_path: Path) -> None:
    text, path = ProgramText(), tmp_path / "job.py"
    assert blocks(text, run(process, path)) == {WORK: ("loop 2 body",)}
    assert blocks(text, run(process, path, line=4)) == {FINISH: ()}
    assert blocks(text, run(process, path, native=True)) == {}
    assert blocks(text, run(process, path, line=0)) == {}


def test_a_relative_path_is_the_process_s_own(process: ProcessId) -> None:
    assert blocks(ProgramText(), run(process, "job.py")) == {WORK: ("loop 2 body",)}


def test_a_text_that_changed_since_the_process_began_is_not_trusted(
    process: ProcessId, tmp_path: Path
) -> None:
    later = time.time() + 60
    os.utime(tmp_path / "job.py", (later, later))
    assert blocks(ProgramText(), run(process, tmp_path / "job.py")) == {}


def test_of_a_process_that_is_gone_nothing_is_said(process: ProcessId, tmp_path: Path) -> None:
    gone = ProcessId("n", 2**22 + 1, 5)
    assert blocks(ProgramText(), run(gone, tmp_path / "job.py")) == {}


@pytest.mark.parametrize("kind", ["absent", "fifo", "folder", "no python", "huge", "of Python"])
def test_what_is_no_text_of_a_program_says_nothing(
    process: ProcessId, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "other.py"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "no python":
        path.write_bytes(b"\x00\xff" * 900)
    elif kind == "huge":
        path.write_text(TEXT + "#" * program_text.MAX_BYTES)
    elif kind == "of Python":
        path = Path(threading.__file__)
    if kind in ("no python", "huge"):
        os.utime(path, (1.0, 1.0))
    assert blocks(ProgramText(), run(process, path)) == {}


def test_a_text_is_read_again_only_where_it_changed(
    process: ProcessId, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed = []

    class Counted(PythonSource):
        def __init__(self, data: bytes) -> None:
            parsed.append(data)
            super().__init__(data)

    monkeypatch.setattr(program_text, "PythonSource", Counted)
    text, path = ProgramText(), tmp_path / "job.py"
    for _ in range(3):
        assert blocks(text, run(process, path))
    assert len(parsed) == 1
    path.write_text(TEXT.replace("for step in range(9)", "if True"))
    os.utime(path, (2.0, 2.0))
    assert blocks(text, run(process, path)) == {WORK: ("choice 2 body",)}
    assert len(parsed) == 2


def test_a_mount_that_hangs_costs_its_patience_once(process: ProcessId, tmp_path: Path) -> None:
    alive, begun = threading.Event(), []

    def hang(path: str, pid: int) -> ProgramFile:
        if path.endswith("dead.py"):
            begun.append(path)
            alive.wait(60)
        return read_program(path, pid)

    text, dead = ProgramText(patience=0.2, read=hang), run(process, tmp_path / "dead.py")
    try:
        assert blocks(text, dead) == {}
        assert blocks(text, dead) == {}
        assert len(begun) == 1
        assert blocks(text, run(process, tmp_path / "job.py"))
    finally:
        alive.set()

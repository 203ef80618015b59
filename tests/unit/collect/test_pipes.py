"""The log of a collector's process: lines, bounds, and where it hung."""

from __future__ import annotations

import os
import selectors
from collections.abc import Iterator

import pytest

from ray_sentinel.collect.worker import LOG_LIMIT, PipeEnd, StderrLog

DUMP = b"""Timeout (0:00:00.500000)!
Thread 0x00007fac979396c0 (most recent call first):
  File "/site-packages/ray_sentinel/collect/child.py", line 69 in _receive
  File "/usr/lib/python3.11/threading.py", line 982 in run

Thread 0x00007fac989c0b80 (most recent call first):
  File "/run/versions/6f48ff/host.py", line 7 in statvfs
  File "/site-packages/ray_sentinel/collect/child.py", line 186 in _collect
"""


class Pipe:
    """A log and the writing end of its pipe."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        reading, self.writing = os.pipe()
        os.set_blocking(self.writing, False)
        self.lines: list[str] = []
        self.file = os.fdopen(reading, "rb", 0)
        self.log = StderrLog(self.selector, self.file, self.lines.append)

    def write(self, data: bytes) -> None:
        os.write(self.writing, data)
        self.turn()

    def turn(self) -> int:
        ready = self.selector.select(0)
        for key, _ in ready:
            key.data()
        return len(ready)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.log.close()
    pipe.selector.close()
    os.close(pipe.writing)


def test_lines_come_whole_whatever_the_pieces(pipe: Pipe) -> None:
    for piece in (b"one\ntw", b"o\n\nthr", b"ee \xff\n"):
        pipe.write(piece)
    assert pipe.lines == ["one", "two", "three \\xff"]


def test_an_endless_line_is_cut(pipe: Pipe) -> None:
    for _ in range(10):
        pipe.write(b"x" * 1000)
    assert pipe.lines
    assert max(map(len, pipe.lines)) <= 4096


def test_past_its_limit_it_waits_for_the_next_run(pipe: Pipe) -> None:
    for _ in range(LOG_LIMIT // 4000 + 1):
        pipe.write(b"y" * 3999 + b"\n")
    assert "the rest waits" in pipe.lines[-1]
    before = len(pipe.lines)
    pipe.write(b"later\n")
    assert pipe.turn() == 0
    assert len(pipe.lines) == before
    pipe.log.refill()
    pipe.turn()
    assert pipe.lines[-1] == "later"


def test_where_it_hung(pipe: Pipe) -> None:
    assert pipe.log.where() == ""
    pipe.write(b"INFO something else\n" + DUMP)
    assert pipe.log.where() == " in statvfs (host.py:7)"


def test_a_closed_end_is_quiet() -> None:
    reading, writing = os.pipe()
    with selectors.DefaultSelector() as selector:
        file = os.fdopen(reading, "rb", 0)
        end = PipeEnd(selector, file, selectors.EVENT_READ, lambda: None)
        end.watch()
        end.close()
        end.watch()
        end.close()
        assert end.closed
        assert end.read(10) is None
        assert selector.get_map() == {}
    os.close(writing)

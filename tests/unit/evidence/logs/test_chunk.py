"""The times around a line are those of the nearest dated lines, wherever pieces end."""

from __future__ import annotations

import pytest

from ray_sentinel.evidence.logs import chunk as module
from ray_sentinel.evidence.logs.chunk import Chunk, first_time, split_lines
from ray_sentinel.evidence.logs.records import LogFile
from ray_sentinel.evidence.logs.scan import Scanner
from ray_sentinel.logs.catalogue import load_catalogue

_REACH = 6000


def looked_up(data: bytes, start: int, end: int) -> tuple[float | None, float | None]:
    """As the lines say, one by one."""
    lines = [(at, raw) for at, raw in split_lines(data) if start - _REACH <= at < end + _REACH]
    before = (raw for at, raw in reversed(lines) if at < start)
    return first_time(before, 2025), first_time((raw for at, raw in lines if at >= end), 2025)


@pytest.mark.parametrize("every", [1, 7, 40, 400])
def test_the_nearest_dated_lines_are_found(every: int) -> None:
    text = "".join(
        f"2025-03-01 10:{n // 60 % 60:02d}:{n % 60:02d} INFO x\n"
        if n % every == 0
        else f"bar {n} " + "=" * (n % 90) + "\n"
        for n in range(900)
    )
    chunk = Chunk(data=text.encode(), base=0, year=2025)
    for at, raw in split_lines(chunk.data):
        if raw.startswith(b"bar"):
            when = chunk.when(raw.decode(), at)
            assert (when.time, when.next) == looked_up(chunk.data, at, at + len(raw) + 1)


def test_a_line_is_read_for_its_time_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    real = module.first_time
    monkeypatch.setattr(
        module, "first_time", lambda lines, year: asked.append(1) or real(lines, year)
    )
    chunk = Chunk(data=b"bar 1/8000 [0:00:01<0:00:02]\n" * 2000, base=0, year=2025)
    for at, raw in split_lines(chunk.data):
        chunk.when(raw.decode(), at)
    assert len(asked) == 2000


def test_a_far_date_counts_where_it_is_asked_for() -> None:
    data = b"2025-03-01 10:00:00 INFO x\n" + b"  frame of a thread\n" * 2000 + b"boom\n"
    chunk, start = Chunk(data=data, base=0, year=2025), len(data) - 5
    assert chunk.when("boom", start).time is None
    assert chunk.when("boom", start, far=True).time == first_time((data[:20],), 2025)


def test_a_piece_without_a_date_has_the_last_one_before_it() -> None:
    chunk = Chunk(data=b"  frame\n" * 2000 + b"boom\n", base=9000, year=2025, earlier=7.0)
    assert chunk.when("boom", 16000, far=True).time == 7.0


def test_the_last_date_is_carried_from_piece_to_piece() -> None:
    scanner = Scanner(LogFile(label="a.log"), 0, load_catalogue(), 2025)
    first = b"2025-03-01 10:00:00 INFO x\n" + b"  frame of a thread\n" * 2000
    error = b"ValueError: I/O operation on closed file\n"
    scanner.feed(first, 0, len(first))
    scanner.feed(b"  frame\n" * 2000, len(first), 16000)
    scanner.feed(b"  frame\n" * 2000 + error, len(first) + 16000, 16000 + len(error))
    (hit,) = scanner.result().hits
    assert (hit.time, hit.own_time) == (first_time((first[:20],), 2025), False)

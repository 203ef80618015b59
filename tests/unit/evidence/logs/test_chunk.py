"""The times around a line are those of the nearest dated lines, wherever pieces end."""

from __future__ import annotations

from typing import Any

import pytest

from ray_sentinel.evidence.logs.lines import chunk as module
from ray_sentinel.evidence.logs.lines.chunk import Chunk, first_time, split_lines
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
            assert (when.time, when.next_time) == looked_up(chunk.data, at, at + len(raw) + 1)


def test_a_line_is_read_for_its_time_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    real = module.first_time
    monkeypatch.setattr(module, "first_time", lambda *given: asked.append(1) or real(*given))
    chunk = Chunk(data=b"bar 1/8000 [00:01<00:02]\n" * 2000, base=0, year=2025)
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


class CountedBytes(bytes):
    """Notes each part of itself that is longer than any line of the test's."""

    searched: list[slice]

    def __getitem__(self, part: Any) -> Any:
        if isinstance(part, slice) and part.stop - part.start > 1000:
            self.searched.append(part)
        return super().__getitem__(part)


def test_pieces_without_a_date_are_passed_over_once() -> None:
    line = b"[rank3]: ValueError: boom\n"
    data = CountedBytes(line * 4000)
    data.searched = searched = []
    chunk = Chunk(data=data, base=0, year=2025, earlier=7.0)
    starts = range(0, len(chunk.data), len(line))
    assert {chunk.when("boom", start, far=True).time for start in starts} == {7.0}
    assert 0 < len(searched) < 2 * len(starts)


def test_the_end_of_a_dated_piece_is_read_from_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    real = module.first_time
    monkeypatch.setattr(module, "first_time", lambda *given: (asked.append(1), real(*given))[1])
    data = b"2025-03-01 10:00:00 INFO x\n" * 30_000
    Chunk(data=data, base=0, year=2025).last_date(len(data))
    assert len(asked) < 1000


def test_the_last_date_is_the_same_whoever_asks_first() -> None:
    text = b"".join(
        b"2025-03-01 10:%02d:%02d INFO x\n" % (n // 60 % 60, n % 60) if n % 777 == 5 else b"frame\n"
        for n in range(9000)
    )
    starts = [at for at, raw in split_lines(text) if raw == b"frame"][::37]
    for order in (starts, starts[::-1], starts[::2] + starts[1::2]):
        chunk = Chunk(data=text, base=0, year=2025)
        for start in order:
            before = (raw for at, raw in reversed(split_lines(text[:start])) if raw)
            assert chunk.last_date(start) == first_time(before, 2025)

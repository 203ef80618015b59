"""The times around a line are those of the nearest dated lines, wherever pieces end."""

from __future__ import annotations

import pytest

from ray_sentinel.evidence.logs import chunk as module
from ray_sentinel.evidence.logs.chunk import Chunk, first_time, split_lines

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
    chunk = Chunk(data=b"bar 1/8000 [00:01<00:02]\n" * 2000, base=0, year=2025)
    for at, raw in split_lines(chunk.data):
        chunk.when(raw.decode(), at)
    assert len(asked) == 2000

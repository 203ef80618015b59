"""A part of a log as bytes: its lines, blocks of lines, and the times around a line."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Sequence

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.evidence.logs.lines.lines import ScannedLine, parse_line
from ray_sentinel.evidence.logs.lines.times import driver_age, parse_time

MAX_LINE = 6000
"""Most characters of a line that are looked at; of a longer one, only those around the trigger
word."""
BLOCK = 48 * 1024
"""Number of bytes after a header that may belong to its block."""
_BACK = 6000
"""Bytes before or after a line within which a dated line is looked for."""
_PIECE = 8192
"""Bytes of a piece: when one date in it is asked for, all its dated lines are looked up at once."""
_TIME_IN = 200
"""Bytes at the beginning of a line that are searched for its time."""
_MAYBE_DATED = re.compile(rb"\d:[0-5]\d:\d|[12]\d{9}|\(autoscaler \+")
"""What every form of a time contains, in one way or another: text without it is passed over
fast."""


class When(msgspec.Struct, frozen=True, kw_only=True):
    """When a line was printed, in Unix seconds."""

    time: float | None = None
    own_time: bool = False
    """The time stands on the line itself; otherwise it is that of the last dated line before."""
    next_time: float | None = None
    """The time of the first dated line after this one, if one is near."""

    @property
    def latest(self) -> float | None:
        """When the line was printed at the latest."""
        return self.time if self.own_time else self.next_time


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of a file. ``data[0]`` is the first byte of a line, at the file's offset ``base``. A
    time without a year is taken to be in ``year``; the age of a Ray driver counts from ``began``
    (Unix seconds)."""

    data: bytes
    base: int
    year: int
    began: float | None = None
    earlier: float | None = None
    """The last date in the file before ``data``, in Unix seconds."""
    dated: dict[int, list[tuple[int, float]]] = {}
    """For each piece looked at so far, the offsets of its dated lines, with their times."""
    before: dict[int, float | None] = {}
    """For each piece asked for so far, the last date of the file before it."""

    def line(self, start: int, at: int) -> bytes:
        """The line that begins at ``start``; of a long one, the part around ``at``."""
        end = self.data.find(b"\n", at)
        raw = self.data[start : len(self.data) if end < 0 else end]
        return raw[max(0, at - start - MAX_LINE // 2) :][:MAX_LINE] if len(raw) > MAX_LINE else raw

    def window(self, start: int, reach: int = BLOCK) -> tuple[list[int], list[ScannedLine]]:
        """Offsets within ``data`` and lines of the ``reach`` bytes of text from ``start`` on."""
        offsets, lines = [], []
        for at, raw in split_lines(self.data[start : start + reach]):
            offsets.append(start + at)
            lines.append(parse_line(raw[:MAX_LINE].decode("utf-8", "replace")))
        return offsets, lines

    def lines_from(self, start: int, count: int) -> list[ScannedLine]:
        """At most ``count`` lines from ``start`` on."""
        part = self.data[start : start + count * MAX_LINE].split(b"\n", count)[:count]
        return [parse_line(raw[:MAX_LINE].decode("utf-8", "replace")) for raw in part]

    def line_before(self, start: int) -> ScannedLine:
        """The line before the one that begins at ``start``; empty for the first."""
        end = max(0, start - 1)
        begin = self.data.rfind(b"\n", 0, end) + 1
        return parse_line(self.data[begin:end][:MAX_LINE].decode("utf-8", "replace"))

    def around(self, start: int, reach: int) -> list[ScannedLine]:
        """The lines up to ``reach`` bytes before and after ``start``."""
        part = self.data[max(0, start - reach) : start + reach].decode("utf-8", "replace")
        return [parse_line(raw) for raw in part.split("\n")]

    def when(self, text: str, start: int, *, far: bool = False) -> When:
        """The time of the line ``text`` that begins at ``start``.

        ``far``: use the last date before it however far away it is, even one before this chunk.
        """
        own = line_time(text, self.year, self.began)
        if own is not None:
            return When(time=own, own_time=True)
        end = self.data.find(b"\n", start) + 1
        before = self.last_date(start) if far else self._last_before(start)
        return When(time=before, next_time=self._first_from(end) if end else None)

    def last_date(self, start: int) -> float | None:
        """Unix seconds of the last date in the file before ``start``, or None."""
        own = start // _PIECE
        if self._may_be_dated(own):
            found = self._piece(own)
            at = bisect.bisect_left(found, (start,)) - 1
            if at >= 0:
                return found[at][1]
        return self._last_until(own)

    def _last_until(self, number: int) -> float | None:
        """The last date before the piece ``number``; a piece without one is passed over once,
        however many lines ask."""
        at, last = number, self.earlier
        while at > 0:
            if at in self.before:
                last = self.before[at]
                break
            if self._may_be_dated(at - 1) and (found := self._piece(at - 1)):
                last = found[-1][1]
                break
            at -= 1
        self.before.update(dict.fromkeys(range(at, number + 1), last))
        return last

    def _may_be_dated(self, number: int) -> bool:
        part = self.data[number * _PIECE : (number + 1) * _PIECE + _TIME_IN]
        return _MAYBE_DATED.search(part) is not None

    def _last_before(self, start: int) -> float | None:
        least = max(0, start - _BACK)
        for number in range(start // _PIECE, least // _PIECE - 1, -1):
            found = self._piece(number)
            at = bisect.bisect_left(found, (start,)) - 1
            if at >= 0:
                return found[at][1] if found[at][0] >= least else None
        return None

    def _first_from(self, start: int) -> float | None:
        most = min(start + _BACK, len(self.data))
        for number in range(start // _PIECE, most // _PIECE + 1):
            found = self._piece(number)
            at = bisect.bisect_left(found, (start,))
            if at < len(found):
                return found[at][1] if found[at][0] < most else None
        return None

    def _piece(self, number: int) -> list[tuple[int, float]]:
        if number not in self.dated:
            self.dated[number] = self._dated_in(number * _PIECE, (number + 1) * _PIECE)
        return self.dated[number]

    def _dated_in(self, at: int, end: int) -> list[tuple[int, float]]:
        data, found = self.data, []
        at = data.find(b"\n", at - 1) + 1 or len(data) if at else 0
        while at < min(end, len(data)):
            stop = data.find(b"\n", at)
            stop = len(data) if stop < 0 else stop
            when = first_time((data[at : min(stop, at + _TIME_IN)],), self.year, self.began)
            if when is not None:
                found.append((at, when))
            at = stop + 1
        return found


_BEHIND_BAR = re.compile(rb"(%\|[^\n\]]{0,300}<[^\n\]]{0,200})\]([A-Za-z0-9(\[*])")
"""The end of a progress bar: it has a bracket but no line break, so what another process prints
next stands right behind it."""


def one_a_line(data: bytes) -> bytes:
    """``data`` in its original length, with each state of a progress bar, and whatever follows one,
    on a line of its own.

    >>> one_a_line(b"3%|# | 3/99 [00:01<00:30, 3.1it/s]Killed")
    b'3%|# | 3/99 [00:01<00:30, 3.1it/s\\nKilled'
    """
    if b"\r" in data:
        data = data.replace(b"\r", b"\n")
    return _BEHIND_BAR.sub(_parted, data) if b"%|" in data else data


def _parted(bar: re.Match[bytes]) -> bytes:
    return bar[1] + b"\n" + bar[2]


def split_lines(data: bytes) -> list[tuple[int, bytes]]:
    """(offset, line without its end) of every line."""
    at, found = 0, []
    for raw in data.split(b"\n"):
        found.append((at, raw))
        at += len(raw) + 1
    return found


def long_lines(data: bytes) -> int:
    """How many lines are longer than ``MAX_LINE`` bytes."""
    at = count = 0
    while len(data) - at > MAX_LINE:
        end = data.rfind(b"\n", at, at + MAX_LINE + 1)
        if end < 0:
            count += 1
            end = data.find(b"\n", at + MAX_LINE)
            if end < 0:
                break
        at = end + 1
    return count


def last_times(
    lines: Sequence[bytes], year: int, most: int, began: float | None
) -> tuple[float, ...]:
    """Unix seconds of the last ``most`` of ``lines`` that have a time, the last one first."""
    times = (first_time((raw,), year, began) for raw in reversed(lines))
    return tuple(itertools.islice((when for when in times if when is not None), most))


def first_time(lines: Iterable[bytes], year: int, began: float | None = None) -> float | None:
    """Unix seconds of the first of ``lines`` that has a time, or None; see ``line_time``."""
    for raw in lines:
        text = raw[:_TIME_IN].decode("utf-8", "replace")
        when = line_time(text, year, began) if raw else None
        if when is not None:
            return when
    return None


def line_time(text: str, year: int, began: float | None) -> float | None:
    """Unix seconds of the time in the line ``text``, also from the age of a Ray driver that
    ``began`` at that time; otherwise None."""
    when = parse_time(text, year)
    if when is None and began is not None and (age := driver_age(text)) is not None:
        return began + age
    return when

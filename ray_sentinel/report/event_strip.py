"""When and where a job's logs report errors: a row for each node or file, a dot for each error.

The picture is as wide as a phone (see ``wait_picture``). Errors of one kind share a dot, which is
at the time of the first of them and grows with their number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from ray_sentinel.model.triage import LogLine, Triage
from ray_sentinel.report.line_plot import PlotMark, PlotTick, clock_ticks, placed_marks
from ray_sentinel.report.wait_picture import wrapped
from ray_sentinel.report.words import clock
from ray_sentinel.text import one_line

WIDTH, LEFT, RIGHT = 440, 112, 14
TOP, BOTTOM, ROW = 34, 24, 24
MOST_ROWS = 12
LABEL_COLUMNS = 18
MARGIN = 0.04
"""Share of the time from the first to the last error that is shown before and after it."""
LEAST, MOST_GROWN = 3.5, 4.0
"""The smallest radius of a dot, and how much more a large one has at most."""
CAUSES = ("first cause", "of the culprit")
"""The labels of evidence that is not an echo."""


class StripRow(msgspec.Struct, frozen=True):
    """A node or a file."""

    y: float
    label: str
    whole: str


class StripDot(msgspec.Struct, frozen=True, kw_only=True):
    """One error, or many of one kind."""

    x: float
    y: float
    radius: float
    kind: str
    """The kind: "cause", "echo" or "survived"."""
    whole: str
    """The full text, for a tooltip."""


class EventStrip(msgspec.Struct, frozen=True, kw_only=True):
    """The picture, laid out."""

    rows: tuple[StripRow, ...]
    dots: tuple[StripDot, ...]
    x_ticks: tuple[PlotTick, ...]
    marks: tuple[PlotMark, ...]
    height: float
    more: int
    """Number of rows that are left out."""
    width: int = WIDTH
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP


class _Error(msgspec.Struct, frozen=True):
    at: float
    place: str
    kind: str
    count: int
    text: str


def event_strip(answer: Triage) -> EventStrip | None:
    """The picture; None if fewer than two moments are known, because it would show nothing."""
    errors = sorted(_errors(answer), key=lambda one: one.at)
    marks = list(_moments(answer))
    moments = [one.at for one in errors] + [at for at, _ in marks]
    if not errors or max(moments) - min(moments) < 1e-3:
        return None
    margin = MARGIN * (max(moments) - min(moments))
    first, last = min(moments) - margin, max(moments) + margin

    def x(at: float) -> float:
        return round(LEFT + (at - first) / (last - first) * (WIDTH - LEFT - RIGHT), 1)

    # Where the cause is comes first, then in the order in which they began.
    ranked = sorted(errors, key=lambda one: one.kind != "cause")
    places = list(dict.fromkeys(one.place for one in ranked))
    shown = {place: TOP + ROW * (n + 0.5) for n, place in enumerate(places[:MOST_ROWS])}
    return EventStrip(
        rows=tuple(
            StripRow(y, wrapped(_short_name(place), LABEL_COLUMNS, 1)[0], one_line(place, 200))
            for place, y in shown.items()
        ),
        dots=tuple(
            StripDot(
                x=x(one.at),
                y=shown[one.place],
                radius=round(LEAST + min(math.log2(max(one.count, 1)) / 2, MOST_GROWN), 1),
                kind=one.kind,
                whole=_describe(one),
            )
            for one in reversed(ranked)  # what is on top is drawn last
            if one.place in shown
        ),
        x_ticks=tuple(PlotTick(x(at), label) for at, label in clock_ticks(first, last)),
        marks=tuple(placed_marks(marks, first, last, x)),
        height=TOP + ROW * len(shown) + BOTTOM,
        more=len(places) - len(shown),
    )


def _errors(answer: Triage) -> Iterator[_Error]:
    """Each line once: evidence and echoes may hold the same ones."""
    seen: set[tuple[str, int | None, str]] = set()
    for line in answer.evidence:
        if line.time is not None and _new(line, seen):
            kind = "cause" if line.note in CAUSES else "echo"
            count = next((one.count for one in answer.echoes if _same(one.first, line)), 1)
            yield _Error(line.time, _place(line), kind, count, line.text)
    for echo in answer.echoes:
        first = echo.first
        if echo.kind != "harmless" and first.time is not None and _new(first, seen):
            kind = "survived" if echo.kind == "survived" else "echo"
            yield _Error(first.time, _place(first), kind, echo.count, first.text)


def _new(line: LogLine, seen: set[tuple[str, int | None, str]]) -> bool:
    key = (line.file, line.line, line.text if line.line is None else "")
    if key in seen:
        return False
    seen.add(key)
    return True


def _same(one: LogLine, other: LogLine) -> bool:
    return (one.file, one.line) == (other.file, other.line)


def _place(line: LogLine) -> str:
    """The folder, if logs are in one folder for each node; else the file."""
    return line.file.rpartition("/")[0] or line.file


def _short_name(place: str) -> str:
    return place.rpartition("/")[2] or place


def _describe(one: _Error) -> str:
    times = f"{one.count} times, first at " if one.count > 1 else ""
    return f"{times}{clock(one.at)}: {one_line(one.text, 200)}"


def _moments(answer: Triage) -> Iterator[tuple[float, str]]:
    if answer.progress.last_step_at is not None:
        yield answer.progress.last_step_at, "last step"
    if answer.first_error_at is not None:
        yield answer.first_error_at, "first error"

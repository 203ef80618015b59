"""Lines over time, laid out to be drawn: ticks, paths, marks and shades in a picture's units.

The picture is as wide as a phone (see ``wait_picture``); its colours are classes of the page, so
that they follow its light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone

import msgspec

from ray_sentinel.model.diagnosis import Plot
from ray_sentinel.text import one_line

Scale = Callable[[float], float]

WIDTH, HEIGHT = 440, 198
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 34, 24
LETTER = 6.2
"""Width of a letter of a mark's label."""
LABEL_ROWS = (TOP - 5, TOP - 18)
"""The heights at which the labels of marks stand."""
MOST_MARKS = 6
"""Most moments that are marked in a plot."""
GREATEST = 1e300
"""Values from which on nothing is drawn: differences between them may overflow."""
LEAST, NOISE = 1e-300, 1e-12
"""Values that differ by less than the first, or by less than the second as a share of them, count
as equal."""
CLOCK_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200)
"""Seconds that may lie between two ticks; beyond these, ticks are whole days apart."""
DAY = 86400


class PlotTick(msgspec.Struct, frozen=True):
    """A label on an axis, and its place."""

    place: float
    label: str


class PlotLine(msgspec.Struct, frozen=True):
    """One series: its name, its path and the number of its colour; ``others`` for a mean."""

    name: str
    path: str
    colour: int
    others: bool


class PlotMark(msgspec.Struct, frozen=True):
    """A moment; its label begins at ``label_x``, or ends there where ``end``."""

    x: float
    label: str
    label_x: float
    label_y: float
    end: bool


class LinePlot(msgspec.Struct, frozen=True, kw_only=True):
    """The picture, laid out."""

    title: str
    unit: str
    promql: str
    x_ticks: tuple[PlotTick, ...]
    y_ticks: tuple[PlotTick, ...]
    lines: tuple[PlotLine, ...]
    marks: tuple[PlotMark, ...]
    shade: tuple[float, float] | None
    """The time from the first to the second value is shaded, because nothing moved then; None for
    no shade."""
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    bottom: int = HEIGHT - BOTTOM


def line_plot(
    plot: Plot, shade: tuple[float, float] | None = None, *, over_steps: bool = False
) -> LinePlot | None:
    """The plot, laid out; None if it has no values. ``shade`` is a time in which nothing moved, in
    Unix seconds. ``over_steps``: the plot's ``times`` are steps of a training."""
    known = [value for _, values in plot.series for value in values if _is_drawn(value)]
    if not plot.times or not known:
        return None
    low, high = min(known), max(known)
    if low > 0 and low < 0.6 * high:
        low = 0.0
    if high - low <= NOISE * max(abs(low), abs(high)) or high - low < LEAST:
        wide = _apart(max(abs(low), abs(high)))
        high, low = high + wide, (0.0 if low == 0.0 else low - wide)
    levels = round_ticks(low, high)
    low, high = levels[0], levels[-1]
    first = plot.times[0]
    last = max(plot.times[-1], first + _apart(first))
    ticks = step_ticks if over_steps else clock_ticks

    def x(at: float) -> float:
        share = min(1.0, max(0.0, (at - first) / (last - first)))
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    def y(value: float) -> float:
        return round(HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM), 1)

    return LinePlot(
        title=plot.title,
        unit=plot.unit,
        promql=plot.promql,
        x_ticks=tuple(PlotTick(x(at), label) for at, label in ticks(first, last)),
        y_ticks=tuple(PlotTick(y(value), short(value)) for value in levels),
        lines=tuple(
            PlotLine(name, _path(plot.times, values, x, y), number, name.startswith("mean of "))
            for number, (name, values) in enumerate(plot.series)
        ),
        marks=tuple(placed_marks(plot.marks, first, last, x)),
        shade=_shade(shade, first, last, x),
    )


def _apart(value: float) -> float:
    """By how much the ends of an axis differ at least: a value above 2^53 is equal to the next."""
    return max(1.0, NOISE * abs(value))


def _is_drawn(value: float) -> bool:
    """Whether it is a measurement: not a hole, and not a value too large for differences to
    show."""
    return math.isfinite(value) and abs(value) < GREATEST


def _shade(
    shade: tuple[float, float] | None, first: float, last: float, x: Scale
) -> tuple[float, float] | None:
    if shade is None or shade[0] >= last or shade[1] <= first:
        return None
    return x(shade[0]), x(shade[1])


def _path(times: Sequence[float], values: Sequence[float], x: Scale, y: Scale) -> str:
    """A hole in a series breaks its line; a value between two holes is a dot."""
    parts, down = [], False
    for at, value in zip(times, values, strict=True):
        if not _is_drawn(value):
            down = False
            continue
        parts.append(f"L{x(at)} {y(value)}" if down else f"M{x(at)} {y(value)}h0")
        down = True
    return "".join(parts)


def placed_marks(
    marks: Iterable[tuple[float, str]], first: float, last: float, x: Scale
) -> Iterable[PlotMark]:
    """The marks in their order, their labels in two rows; a mark whose label fits in neither is
    left out."""
    free = [float(LEFT)] * len(LABEL_ROWS)
    inside = sorted((at, one_line(label, 24)) for at, label in marks if first <= at <= last)
    for at, label in inside[:MOST_MARKS]:
        place, wide = x(at), LETTER * len(label)
        end = place + 4 + wide > WIDTH
        begin = place - 4 - wide if end else place + 4
        row = next((row for row, until in enumerate(free) if begin >= until), None)
        if row is not None:
            free[row] = begin + wide + 6
        yield PlotMark(
            place,
            label if row is not None else "",
            place - 4 if end else place + 4,
            LABEL_ROWS[row or 0],
            end,
        )


def round_ticks(low: float, high: float) -> list[float]:
    """Three to seven round values around the range.

    >>> round_ticks(0.0, 7.3)
    [0.0, 2.0, 4.0, 6.0, 8.0]
    """
    rough = (high - low) / 5
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


def clock_ticks(first: float, last: float) -> list[tuple[float, str]]:
    """Some five moments at whole minutes, hours or days, in UTC."""
    rough = (last - first) / 5
    step = next((one for one in CLOCK_STEPS if one >= rough), 0)
    step = step or DAY * math.ceil(rough / DAY)
    form = "%H:%M:%S" if step < 60 else "%H:%M" if step < DAY else "%m-%d"
    begin = math.ceil(first / step) * step
    moments = [begin + number * step for number in range(int((last - begin) // step) + 1)]
    return [
        (float(at), datetime.fromtimestamp(at, tz=timezone.utc).strftime(form)) for at in moments
    ]


def step_ticks(first: float, last: float) -> list[tuple[float, str]]:
    """Some five round steps.

    >>> step_ticks(1204.0, 1391.0)
    [(1250.0, '1,250'), (1300.0, '1,300'), (1350.0, '1,350')]
    """
    inside = [step for step in round_ticks(first, last) if first <= step <= last]
    whole = [step for step in inside if step == int(step)]
    return [(step, f"{step:,.0f}" if last < 1e6 else short(step)) for step in whole]


def short(value: float) -> str:
    """A number with at most four characters and a unit letter.

    >>> short(1500000.0)
    '1.5M'
    """
    for factor, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.3g}{letter}"
    return f"{value:.3g}"


def measured(value: float, unit: str) -> str:
    """A value for people.

    >>> measured(955_500_000_000.0, "B"), measured(1026.2, "tokens/s")
    ('956 GB', '1,026 tokens/s')
    """
    if abs(value) >= 1e5 and unit.partition("/")[0] in ("B", "W", "Hz"):
        text = short(value)
        return f"{text[:-1]} {text[-1]}{unit}"
    return f"{value:,.4g} {unit}".rstrip()

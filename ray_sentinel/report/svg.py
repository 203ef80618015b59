"""Line plots as SVG text: no script, no font, no file beside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from html import escape

from ray_sentinel.model.diagnosis import Plot
from ray_sentinel.report.words import plain

Scale = Callable[[float], float]

WIDTH, HEIGHT = 760, 220
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 12, 26
COLOURS = ("#c62828", "#1565c0", "#2e7d32", "#ef6c00", "#6a1b9a", "#00838f", "#777777")


def svg(plot: Plot) -> str:
    """One plot; a hole in a series breaks its line."""
    known = [value for _, values in plot.series for value in values if math.isfinite(value)]
    if not plot.times or not known:
        return ""
    low, high = min(known), max(known)
    if low > 0 and low < 0.6 * high:
        low = 0.0
    if high == low:
        high, low = high + 1.0, low - 1.0
    first, last = plot.times[0], max(plot.times[-1], plot.times[0] + 1.0)

    def x(at: float) -> float:
        return LEFT + (at - first) / (last - first) * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escaped(plot.title)}">',
        *_axes(low, high, first, last, x, y),
    ]
    for index, (name, values) in enumerate(plot.series):
        path = _path(plot.times, values, x, y)
        colour = COLOURS[index % len(COLOURS)] if not name.startswith("mean") else COLOURS[-1]
        parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.4">'
                     f"<title>{escaped(name)}</title></path>")  # fmt: skip
    for at, label in plot.marks:
        if first <= at <= last:
            parts.append(
                f'<line x1="{x(at):.1f}" x2="{x(at):.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" '
                f'stroke="#c62828" stroke-dasharray="4 3"/><text x="{x(at) + 3:.1f}" '
                f'y="{TOP + 10}" fill="#c62828">{escaped(label)}</text>'
            )
    return "".join(parts) + "</svg>" + _legend(plot)


def _axes(low: float, high: float, first: float, last: float, x: Scale, y: Scale) -> list[str]:
    parts = []
    for share in (0.0, 0.5, 1.0):
        value, at = low + share * (high - low), first + share * (last - first)
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" '
            f'stroke="#8884"/><text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">'
            f"{short(value)}</text>"
        )
        anchor = "start" if share == 0 else "end" if share == 1 else "middle"
        clock = datetime.fromtimestamp(at, tz=timezone.utc).strftime("%H:%M:%S")
        parts.append(
            f'<text x="{x(at):.1f}" y="{HEIGHT - 8}" text-anchor="{anchor}">{clock}</text>'
        )
    return parts


def _path(times: Sequence[float], values: Sequence[float], x: Scale, y: Scale) -> str:
    parts, down = [], False
    for at, value in zip(times, values, strict=True):
        if not math.isfinite(value):
            down = False
            continue
        parts.append(f"{'L' if down else 'M'}{x(at):.1f} {y(value):.1f}")
        down = True
    return "".join(parts)


def _legend(plot: Plot) -> str:
    items = []
    for index, (name, _) in enumerate(plot.series):
        colour = COLOURS[index % len(COLOURS)] if not name.startswith("mean") else COLOURS[-1]
        items.append(f'<span><i style="background:{colour}"></i>{escaped(name)}</span>')
    return f'<p class="legend">{" ".join(items)}</p>'


def escaped(text: str) -> str:
    """Text from outside, for SVG."""
    return escape(plain(text))


def short(value: float) -> str:
    """A number with at most four characters and a unit letter.

    >>> short(1500000.0)
    '1.5M'
    """
    for factor, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.3g}{letter}"
    return f"{value:.3g}"

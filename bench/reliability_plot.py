"""Stated confidence against the share that is right, as an SVG of its own: a panel for each group.

A point on the diagonal is as often right as it says; below it, it was too sure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

COLOURS = ("#1f6feb", "#d9622b", "#2da44e", "#8250df", "#bf8700", "#cf222e")
SIDE = 240
"""Pixels of a panel's square."""
LEFT, TOP, GAP, BELOW = 44, 26, 30, 40
LINE = 15
"""Pixels of a line of the legend."""
STYLE = (
    "text{font:11px sans-serif;fill:#57606a}.grid{stroke:#d0d7de}.ideal{stroke:#57606a;"
    "stroke-dasharray:4 3}.title{font-weight:600;fill:#24292f}.whisker{stroke-width:1.2;"
    "opacity:.55}.line{fill:none;stroke-width:1.2;opacity:.35}"
    "@media(prefers-color-scheme:dark){text{fill:#8b949e}.title{fill:#e6edf3}"
    ".grid{stroke:#30363d}.ideal{stroke:#8b949e}}"
)


class Point(NamedTuple):
    """Verdicts of one bin; shares are 0..1."""

    stated: float
    right: float
    low: float
    high: float
    count: int


def draw(path: Path, panels: Mapping[str, Mapping[str, Sequence[Point]]]) -> None:
    """Write the panels, one beside the other; each has lines by name."""
    lines = max(map(len, panels.values()))
    height = TOP + SIDE + BELOW + LINE * lines + 4
    width = len(panels) * (LEFT + SIDE + GAP) - GAP + 24
    parts = []
    for place, (title, series) in enumerate(panels.items()):
        left = LEFT + place * (LEFT + SIDE + GAP)
        parts.append(f'<g transform="translate({left} {TOP})">{"".join(_panel(title, series))}</g>')
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">'
        f"<style>{STYLE}</style>{''.join(parts)}</svg>\n"
    )


def _panel(title: str, series: Mapping[str, Sequence[Point]]) -> Iterator[str]:
    yield f'<text class="title" x="0" y="-10">{escape(title)}</text>'
    for tick in range(0, 101, 20):
        at = _y(tick / 100)
        yield f'<path class="grid" d="M0 {at}H{SIDE}"/>'
        yield f'<text x="-6" y="{at + 4}" text-anchor="end">{tick} %</text>'
        yield f'<text x="{_x(tick / 100)}" y="{SIDE + 15}" text-anchor="middle">{tick} %</text>'
    yield f'<path class="ideal" d="M0 {SIDE}L{SIDE} 0"/>'
    yield f'<text x="{SIDE}" y="{SIDE + 29}" text-anchor="end">stated confidence</text>'
    yield '<text x="6" y="12">right</text>'
    for place, (name, points) in enumerate(series.items()):
        yield from _line(place, name, points)


def _line(place: int, name: str, points: Sequence[Point]) -> Iterator[str]:
    colour = COLOURS[place % len(COLOURS)]
    path = "L".join(f"{_x(one.stated)} {_y(one.right)}" for one in points)
    yield f'<path class="line" stroke="{colour}" d="M{path}"/>'
    for one in points:
        x = _x(one.stated)
        yield f'<path class="whisker" stroke="{colour}" d="M{x} {_y(one.low)}V{_y(one.high)}"/>'
        # The area tells how many they are.
        radius = min(9.0, max(1.8, one.count**0.5 / 2.5))
        told = f"{name}: stated {one.stated:.0%}, right {one.right:.0%} of {one.count}"
        yield (
            f'<circle cx="{x}" cy="{_y(one.right)}" r="{radius:.1f}" fill="{colour}" '
            f'fill-opacity=".8"><title>{escape(told)}</title></circle>'
        )
    count = sum(one.count for one in points)
    yield (
        f'<text x="0" y="{SIDE + BELOW + LINE * place + 8}" style="fill:{colour}">'
        f"{escape(name)}, {count} verdicts</text>"
    )


def _x(share: float) -> float:
    return round(SIDE * share, 1)


def _y(share: float) -> float:
    return round(SIDE * (1 - share), 1)

"""How figures grow with a number, as an SVG of its own: one panel for each figure."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import NamedTuple

from ray_sentinel.model.diagnosis import Plot
from ray_sentinel.report.line_plot import LinePlot, line_plot

COLOURS = ("#1f6feb", "#d9622b", "#2da44e", "#8250df")
GAP = 16
AXIS = 14
"""Pixels for what the number is."""


class Panel(NamedTuple):
    """One figure: its lines by name, each with its values by the number."""

    title: str
    unit: str
    lines: Mapping[str, Mapping[int, float]]


def draw(path: Path, panels: list[Panel], axis: str) -> None:
    """Write the panels, one below the other; ``axis`` says what the number is."""
    laid_out = [(panel, found) for panel in panels if (found := _laid_out(panel)) is not None]
    width = laid_out[0][1].width
    parts, top = [], 0
    for panel, drawn in laid_out:
        parts.append(f'<g transform="translate(0 {top})">{_panel(panel, drawn, axis)}</g>')
        top += drawn.height + AXIS + GAP
    style = (
        "text{font:11px sans-serif;fill:#57606a}.grid{stroke:#d0d7de}.line{fill:none;"
        "stroke-width:1.8;stroke-linecap:round}.title{font-weight:600;fill:#24292f}"
        "@media(prefers-color-scheme:dark){text{fill:#8b949e}.title{fill:#e6edf3}"
        ".grid{stroke:#30363d}}"
    )
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top}" width="{width}">'
        f"<style>{style}</style>{''.join(parts)}</svg>\n"
    )


def _numbers(panel: Panel) -> list[int]:
    return sorted({number for values in panel.lines.values() for number in values})


def _laid_out(panel: Panel) -> LinePlot | None:
    numbers = _numbers(panel)
    nan = float("nan")
    series = tuple(
        # The axis begins at 0, so that one sees whether it is a straight line.
        (name, (nan, *(values.get(number, nan) for number in numbers)))
        for name, values in panel.lines.items()
        if values
    )
    return line_plot(
        Plot(
            title=panel.title,
            unit=panel.unit,
            promql="",
            times=(0.0, *map(float, numbers)),
            series=series,
        )
    )


def _panel(panel: Panel, drawn: LinePlot, axis: str) -> str:
    numbers = _numbers(panel)
    title = f"{panel.title}, {panel.unit}" if panel.unit else panel.title
    parts = [f'<text class="title" x="{drawn.left}" y="14">{escape(title)}</text>']
    for tick in drawn.y_ticks:
        parts.append(f'<path class="grid" d="M{drawn.left} {tick.place}H{drawn.right}"/>')
        parts.append(
            f'<text x="{drawn.left - 6}" y="{tick.place + 4}" text-anchor="end">{tick.label}</text>'
        )
    wide = drawn.right - drawn.left
    for number in numbers:
        place = drawn.left + wide * number / numbers[-1]
        anchor = "end" if number == numbers[-1] else "middle"
        parts.append(
            f'<text x="{place:.1f}" y="{drawn.height - 7}" text-anchor="{anchor}">{number}</text>'
        )
    parts.append(
        f'<text x="{drawn.right}" y="{drawn.height - 7 + AXIS}" text-anchor="end">'
        f"{escape(axis)}</text>"
    )
    for place, line in enumerate(drawn.lines):
        colour = COLOURS[place % len(COLOURS)]
        parts.append(f'<path class="line" stroke="{colour}" d="{line.path}"/>')
        parts.append(
            f'<text x="{drawn.right}" y="{14 + 13 * place}" text-anchor="end" '
            f'style="fill:{colour}">{escape(line.name)}</text>'
        )
    return "".join(parts)

"""Every process as a cell, a line of cells for each node; nodes with trouble come first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich.text import Text

from ray_sentinel.cli.top.looks import cell_style, plain, sign
from ray_sentinel.cli.top.process_lines import ProcessLine, worst_first

GROUP = 8
"""Cells between two gaps: the GPUs of a usual node."""
GROUPS = 4
"""In one line; further ones of the same node stand below it."""


class MapLine(NamedTuple):
    """Some of a node's processes."""

    host: str
    number: int
    """0 for the first line of its node."""
    cells: tuple[ProcessLine, ...]
    told: str
    """Of all of the node's, in words."""


def map_lines(lines: Iterable[ProcessLine]) -> list[MapLine]:
    """The lines of the map."""
    by_host: dict[str, list[ProcessLine]] = {}
    for line in lines:
        by_host.setdefault(line.host, []).append(line)
    trouble = {host: sum(line.in_trouble for line in there) for host, there in by_host.items()}
    found = []
    for host in sorted(by_host, key=lambda one: -trouble[one]):
        there = by_host[host]
        told = in_words(there)
        size = GROUP * GROUPS
        for number, start in enumerate(range(0, len(there), size)):
            found.append(MapLine(host, number, tuple(there[start : start + size]), told))
    return found


def in_words(lines: Sequence[ProcessLine]) -> str:
    """ "1 stopped, 7 waiting": the rarest states first, which tell most."""
    count = Counter(line.state for line in lines)
    return ", ".join(f"{number} {state}" for state, number in sorted(
        count.items(), key=lambda item: (item[1], item[0])
    ))  # fmt: skip


def map_cells(line: MapLine) -> list[Text]:
    """Node, cells, words; only the first line of a node names it."""
    return [
        plain(line.host if not line.number else "", limit=60),
        cells(line.cells),
        plain(_worst(line) if not line.number else "", "dim"),
    ]


def _worst(line: MapLine) -> str:
    worst = next((one for one in worst_first(line.cells) if one.in_trouble), None)
    return f"{worst.who} {worst.state} · {line.told}" if worst is not None else line.told


def cells(lines: Sequence[ProcessLine]) -> Text:
    """One sign for each."""
    text = Text()
    for number, line in enumerate(lines):
        if number and number % GROUP == 0:
            text.append(" ")
        text.append(sign(line.state), cell_style(line.state, accused=line.accused))
    return text


def legend(lines: Iterable[ProcessLine]) -> Text:
    """What the signs mean, with how many there are of each."""
    count = Counter(line.state for line in lines)
    text = Text(no_wrap=True, overflow="ellipsis")
    for state, number in count.most_common():
        text.append(sign(state), cell_style(state)).append(" ")
        text.append_text(plain(f"{number} {state}")).append("   ")
    return text

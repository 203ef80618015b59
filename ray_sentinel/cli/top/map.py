"""Every process as a cell, a line of cells for each node; nodes with trouble come first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rich.text import Text

from ray_sentinel.cli.top.looks import cell_style, plain, sign
from ray_sentinel.cli.top.process_lines import ProcessLine, worst_first

GROUP = 8
"""Cells between two gaps in a line, as many as a usual node has GPUs."""
GROUPS = 4
"""Groups of cells in one line; further groups of the same node stand on the lines below it."""
MOST_MORE = GROUP // 2
"""Cells by which a line may be longer, so that they need not stand alone on a line of their own."""


class MapLine(NamedTuple):
    """Some of a node's processes."""

    host: str
    number: int
    """Position of the line within its node, 0 for the first."""
    cells: tuple[ProcessLine, ...]
    told: str
    """The state of all the node's processes, in words."""


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
        for number, part in enumerate(_folded(there)):
            found.append(MapLine(host, number, tuple(part), told))
    return found


def _folded(there: Sequence[ProcessLine]) -> Iterator[Sequence[ProcessLine]]:
    """A node's processes in lines; the last one is never a few cells alone."""
    size, start = GROUP * GROUPS, 0
    while len(there) - start > size + MOST_MORE:
        few = 0 < len(there) - start - size < GROUP
        end = start + (size - GROUP if few else size)
        yield there[start:end]
        start = end
    yield there[start:]


def in_words(lines: Sequence[ProcessLine]) -> str:
    """ "rank 3 stopped, 7 waiting": the worst one by its name, and the rarest states first, which
    tell most."""
    count = Counter(line.state for line in lines)
    worst = next((one for one in worst_first(lines) if one.in_trouble), None)
    told = []
    if worst is not None:
        count[worst.state] -= 1
        more = count.pop(worst.state)
        told.append(f"{worst.who} {worst.state}" + (f" and {more} more" if more else ""))
    rarest = sorted(count.items(), key=lambda item: (item[1], item[0]))
    return ", ".join([*told, *(f"{number} {state}" for state, number in rarest)])


def map_cells(line: MapLine) -> list[Text]:
    """Node, cells, words; only the first line of a node names it."""
    return [
        plain(line.host if not line.number else "", limit=60),
        cells(line.cells),
        plain(line.told if not line.number else "", "dim"),
    ]


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

"""The differences between two successive states, for a client that has the earlier one
(``changes.js``).

A change is ``[path, value]``, which puts a value into its place, or ``[path, gaps, values]``, which
puts values into some places of a list: the first ``gaps[0]`` from its beginning, each of the next
as far from the one before as its gap says.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

Change = list[Any]
Path = tuple[str | int, ...]


def changes(before: Any, after: Any) -> list[Change]:
    """The changes from one state to the other, both made of dicts, lists and values sent whole."""
    return list(_changes((), before, after))


def _changes(path: Path, before: Any, after: Any) -> Iterator[Change]:
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict) and before.keys() == after.keys():
        for name, value in after.items():
            yield from _changes((*path, name), before[name], value)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        places = [place for place, one in enumerate(after) if one != before[place]]
        if all(isinstance(after[place], (dict, list)) for place in places):
            for place in places:
                yield from _changes((*path, place), before[place], after[place])
        elif 2 * len(places) < len(after):
            gaps = [later - earlier for earlier, later in pairwise((0, *places))]
            yield [path, gaps, [after[place] for place in places]]
        else:
            yield [path, after]
    else:
        yield [path, after]

"""The numbers of the series that a node samples together: one block, of which each moment is a row
and each series a column.

With an array for each of a hundred series on each of a thousand nodes, what the arrays take beside
their numbers is a quarter of the memory. So nothing is kept for one series of one node: which
series the columns belong to is the same on nodes that have the same series, and known once for all
of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import compress

import msgspec

from ray_sentinel.model.metrics import Labels
from ray_sentinel.model.samples import ABSENT, Floats, SeriesKey, is_absent

MOST_NUMBERS = 4 << 20
"""Most numbers of one block: half an hour of 10,000 series. A few rows and a few columns that come
one after the other would otherwise become a block of gigabytes."""
MOST_SHARED = 16_384
"""Most names of series that are stored once for all nodes."""
MOST_LAYOUTS = 64
"""Most tables of series that are stored once for all nodes that have the same ones."""
MOST_LOOKUPS = 1024
"""Most answers that are kept to which series of a name have some labels."""


class Column(msgspec.Struct):
    """One series as it is packed."""

    key: SeriesKey
    values: bytes = b""
    """Its numbers (``Floats.packed``), one for each of the stream's times."""


@lru_cache(maxsize=MOST_SHARED)
def _shared(key: SeriesKey) -> SeriesKey:
    return key


@lru_cache(maxsize=MOST_SHARED)
def _in_order(labels: Labels) -> Labels:
    return tuple(sorted(labels))


@lru_cache(maxsize=MOST_SHARED)
def _by_name(labels: Labels) -> Mapping[str, str]:
    return dict(labels)


class SeriesOfName:
    """The series that share the name of a metric, and their columns."""

    __slots__ = ("_found", "by_name", "columns", "labels")

    def __init__(self, labels: tuple[Labels, ...], columns: tuple[int, ...]) -> None:
        self.labels, self.columns = labels, columns
        self.by_name = tuple(map(_by_name, labels))
        self._found: dict[Labels, tuple[int, ...]] = {}

    def matching(self, wanted: Labels) -> tuple[int, ...]:
        """The columns of the series that have these labels."""
        found = self._found.get(wanted)
        if found is None:
            given = set(wanted)
            found = tuple(compress(self.columns, (given <= set(known) for known in self.labels)))
            if len(self._found) >= MOST_LOOKUPS:
                self._found.clear()
            self._found[wanted] = found
        return found


_of_name = lru_cache(maxsize=MOST_SHARED)(SeriesOfName)


class ColumnLayout:
    """Which series the columns of a block belong to."""

    def __init__(self, keys: tuple[SeriesKey, ...]) -> None:
        self.keys = tuple(map(_shared, keys))
        self.width = len(keys)

    @cached_property
    def names(self) -> Mapping[str, SeriesOfName]:
        """The series by the names of their metrics."""
        found: dict[str, dict[Labels, int]] = {}
        for column, key in enumerate(self.keys):
            found.setdefault(key.name, {}).setdefault(_in_order(key.labels), column)
        return {
            name: _of_name(tuple(columns), tuple(columns.values()))
            for name, columns in found.items()
        }


_layout = lru_cache(maxsize=MOST_LAYOUTS)(ColumnLayout)


def names_beside(first: ColumnLayout, second: ColumnLayout) -> Mapping[str, SeriesOfName]:
    """The series of the second by their names, without those that the first has too."""
    both = first.names.keys() & second.names.keys()
    if not both:
        return second.names
    found = dict(second.names)
    for name in both:
        there, named = set(first.names[name].labels), found.pop(name)
        rest = [labels not in there for labels in named.labels]
        labels, columns = compress(named.labels, rest), compress(named.columns, rest)
        if any(rest):
            found[name] = _of_name(tuple(labels), tuple(columns))
    return found


def most_rows(width: int) -> int:
    """Most rows of a block of so many columns."""
    return max(1, MOST_NUMBERS // max(1, width))


class SampleColumns:
    """A row for each moment, the oldest first, and a column for each series. Where a series has no
    value there is ``ABSENT``."""

    __slots__ = ("layout", "numbers")

    def __init__(self, keys: Iterable[SeriesKey] = (), numbers: Floats | None = None) -> None:
        self.layout: ColumnLayout = _layout(tuple(keys))
        self.numbers = Floats() if numbers is None else numbers
        """The rows one after the other."""

    @property
    def keys(self) -> tuple[SeriesKey, ...]:
        """The series of each column."""
        return self.layout.keys

    @property
    def width(self) -> int:
        """The number of columns."""
        return self.layout.width

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SampleColumns) and (self.keys, self.numbers) == (
            other.keys,
            other.numbers,
        )

    __hash__ = None  # type: ignore[assignment]

    def packed(self) -> list[Column]:
        """What ``unpacked`` accepts."""
        width, block = self.width, Floats(self.numbers.packed())
        return [Column(key, block[place::width].tobytes()) for place, key in enumerate(self.keys)]

    @classmethod
    def unpacked(cls, columns: Sequence[Column]) -> SampleColumns:
        """The columns of a snapshot. Raises ValueError if those of one are no numbers, or not as
        many as those of another."""
        found = [Floats.unpacked(column.values) for column in columns]
        numbers = _absent(len(found) * len(found[0])) if found else Floats()
        for place, values in enumerate(found):
            numbers[place :: len(found)] = values
        return cls((column.key for column in columns), numbers)

    def copy(self) -> SampleColumns:
        """A copy that stays as it is."""
        return SampleColumns(self.keys, Floats(self.numbers))

    def row(self, place: int) -> dict[SeriesKey, float]:
        """The values in a row."""
        width = self.width
        values = self.numbers[place * width : (place + 1) * width]
        pairs = zip(self.keys, values, strict=True)
        return {key: value for key, value in pairs if not is_absent(value)}

    def append(self, values: Floats) -> None:
        """Add a row with the values of the first columns."""
        self.numbers.extend(values)
        if missing := self.width - len(values):
            self.numbers.extend(_absent(missing))

    def drop(self, rows: int) -> None:
        """Drop the first ``rows``."""
        del self.numbers[: rows * self.width]

    def thin(self, begin: int, end: int, every: int) -> None:
        """Keep one row of ``every`` between ``begin`` and ``end``, beginning with the first."""
        width, kept = self.width, Floats()
        for first in range(begin * width, end * width, every * width or 1):
            kept.extend(self.numbers[first : first + width])
        self.numbers[begin * width : end * width] = kept

    def arrange(self, keys: Sequence[SeriesKey], rows: int) -> None:
        """Have the columns of these keys in front, in the order of the keys."""
        there: dict[SeriesKey, int] = {}
        for place, key in enumerate(self.keys):
            there.setdefault(key, place)
        first = [there.pop(key, None) for key in keys]
        self._choose((*keys, *there), [*first, *there.values()], rows)

    def drop_empty(self, begin: int, rows: int) -> bool:
        """Drop those of the columns from ``begin`` on in which no value is a number. Returns
        whether there were any."""
        width = self.width
        rest = range(begin, width)
        full = (p for p in rest if not all(map(math.isnan, self.numbers[p::width])))
        kept = [*range(begin), *full]
        if len(kept) == width:
            return False
        self._choose([self.keys[place] for place in kept], kept, rows)
        return True

    def _choose(self, keys: Iterable[SeriesKey], places: Sequence[int | None], rows: int) -> None:
        """Have these columns, of which each has its values from a place; from None, none."""
        data, before = self.numbers.tobytes(), 8 * self.width
        runs, pieces = list(_runs(places)), []
        for row in range(0, rows * before, before) if before else ():
            for begin, end, absent in runs:
                pieces.append(absent or data[row + begin : row + end])
        numbers = Floats(b"".join(pieces)) if before else _absent(rows * len(places))
        self.layout, self.numbers = _layout(tuple(keys)), numbers


def _absent(count: int) -> Floats:
    found = Floats((ABSENT,))
    found *= count
    return found


def _runs(places: Sequence[int | None]) -> Iterator[tuple[int, int, bytes]]:
    """Places that follow each other, taken together: where the bytes of their numbers begin and end
    in a row, or the bytes to write for those that have none."""
    begin = 0
    for end in range(1, len(places) + 1):
        first, count = places[begin], end - begin
        after = None if first is None else first + count
        if end == len(places) or places[end] != after:
            if first is None:
                yield 0, 0, _absent(count).tobytes()
            else:
                yield 8 * first, 8 * (first + count), b""
            begin = end

"""Samples of one series as a history holds them: rows as they came, blocks of older ones."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray

from ray_sentinel.diagnose.series import Bools, Floats, Samples
from ray_sentinel.store.history_block import ABSENT, BITS, HistoryBlock

GAP = 1.5
"""Cells of a block between two of its samples from which there is a gap."""

Key = tuple[str, dict[str, str]]
"""Name and labels."""
Columns = list[tuple[int, dict[str, str]]]
"""One family's places in a layout, with their labels."""


class HistoryTable(msgspec.Struct, frozen=True):
    """All rows of one layout, ordered by host, then time."""

    keys: tuple[Key, ...]
    """(Name, labels) of each column."""
    hosts: NDArray[np.int64]
    times: Floats
    values: Floats
    """(rows, columns)."""


class HistoryPart(msgspec.Struct, frozen=True):
    """Samples of one series that were kept alike."""

    labels: dict[str, str]
    times: Floats
    values: Floats
    step: float = 0.0
    """Seconds that each stands for, up to its time; 0 for what is kept as it came."""


def whole_labels(host: str, labels: dict[str, str]) -> dict[str, str]:
    return {"host": host, **labels} if host else dict(labels)


def of_rows(table: HistoryTable, columns: Columns, hosts: dict[int, str]) -> Iterator[HistoryPart]:
    """The series of a table that are meant, one for each host and column."""
    numbers, starts = np.unique(table.hosts, return_index=True)
    ends = [*starts[1:], len(table.hosts)][: len(starts)]
    for place, labels in columns:
        for number, start, end in zip(numbers, starts, ends, strict=True):
            values = table.values[start:end, place]
            there = values.view(BITS) != ABSENT
            if there.any():
                whole = whole_labels(hosts.get(int(number), ""), labels)
                yield HistoryPart(whole, table.times[start:end][there], values[there])


def joined(parts: list[HistoryPart]) -> Samples:
    if len(parts) == 1:
        return Samples(parts[0].labels, parts[0].times, parts[0].values)
    times = np.concatenate([part.times for part in parts])
    order = np.argsort(times, kind="stable")
    values = np.concatenate([part.values for part in parts])
    return Samples(parts[0].labels, times[order], values[order])


def spread(row: Floats, times: Floats, part: HistoryPart, growing: bool) -> None:
    """Fill cells of ``row`` that no sample fell into from the coarse one for them."""
    at = np.minimum(np.searchsorted(part.times, times, "left"), part.times.size - 1)
    covered: Bools = (
        np.isnan(row) & (part.times[at] >= times) & (times > part.times[at] - part.step)
    )
    at, moments = at[covered], times[covered]
    values = part.values[at]
    if growing:
        before = np.maximum(at - 1, 0)
        width = part.times[at] - part.times[before]
        rise = part.values[at] - part.values[before]
        # After a gap or a reset nothing is known of the way.
        known = (width > 0) & (width < GAP * part.step) & (rise >= 0)
        share = np.where(known, (part.times[at] - moments) / np.maximum(width, part.step), 0.0)
        values = values - np.where(known, rise, 0.0) * share
    row[covered] = values


def of_blocks(
    blocks: list[HistoryBlock], columns: Columns, hosts: dict[int, str]
) -> list[HistoryPart]:
    """The series of a family's blocks, in order of time: one for each series and step."""
    found: dict[tuple[float, int, int], list[tuple[Floats, Floats]]] = {}
    for block in blocks:
        for row, host in enumerate(block.hosts):
            for column in range(len(columns)):
                values = block.values[row, column]
                there = ~np.isnan(values)
                if there.any():
                    pair = (block.times[there], values[there])
                    found.setdefault((block.step, int(host), column), []).append(pair)
    return [
        HistoryPart(
            whole_labels(hosts.get(host, ""), columns[column][1]),
            np.concatenate([times for times, _ in pairs]),
            np.concatenate([values for _, values in pairs]),
            step,
        )
        for (step, host, column), pairs in found.items()
    ]

"""A history file grows old: what was said lately stays as it was said, older samples are thinned.

The ladder: as they came for half an hour, then cells of 10 s until four hours, 30 s until a day,
2 min until a week, 8 min beyond. Where the file would exceed its size nevertheless, the kind of
cell that takes most space gives: the oldest quarter of it goes a rung down, and is dropped only
from the last. So a job of any length keeps its beginning.
"""

from __future__ import annotations

import itertools
import json
import math
import sqlite3
from collections.abc import Iterator

import msgspec
import numpy as np

from ray_sentinel.diagnose.reduction import of_series
from ray_sentinel.diagnose.series import Bools, Reduce
from ray_sentinel.store.history_block import (
    CELLS,
    HistoryBlock,
    Rule,
    decode,
    encode,
    gathered,
    merged,
    plain,
)
from ray_sentinel.store.keys import parse_key

RAW_SECONDS = 1800.0
"""For which samples stay as they were said."""
LADDER = ((10.0, 4 * 3600.0), (30.0, 86400.0), (120.0, 7 * 86400.0), (480.0, math.inf))
"""(Seconds of a cell, the age until which it stays). Each divides the next."""
LAST_STEP = 1920.0
"""Coarser than that a series tells nothing; it is reached for want of space only."""
SHARE = 0.25
"""Of the span of time that is made coarser, or dropped, in one turn."""
MOST_TURNS = 40
"""Of making room, at one look; the next goes on."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS blocks
  (family TEXT, layout INTEGER, step REAL, start REAL, bytes INTEGER, hosts BLOB, vals BLOB,
   PRIMARY KEY (family, layout, step, start));
CREATE INDEX IF NOT EXISTS blocks_by_age ON blocks (step, start, bytes);
"""
"""A ``HistoryBlock`` of one family. Its layout has the columns of this family only, in order: what
comes and goes in one family leaves the others' blocks whole."""


class Columns(msgspec.Struct, frozen=True):
    """One family's columns and their places in a layout."""

    family: str
    keys: tuple[str, ...]
    places: tuple[int, ...]
    rule: Rule


def age(base: sqlite3.Connection, now: float, max_bytes: int) -> None:
    """Thin what is old at ``now``, and more of it until ``max_bytes`` are kept to.

    Each piece is a transaction. Raises sqlite3.Error where the file cannot be written.
    """
    pack(base, now - RAW_SECONDS)
    for (step, until), (coarser, _) in itertools.pairwise(LADDER):
        coarsen(base, step, coarser, now - until)
    thin(base, max_bytes)
    base.execute("PRAGMA incremental_vacuum").fetchall()


def thin(base: sqlite3.Connection, max_bytes: int) -> None:
    """Let the least useful go until ``max_bytes`` are kept to."""
    for _ in range(MOST_TURNS):
        if used_bytes(base) <= max_bytes or not _give(base):
            break


def used_bytes(base: sqlite3.Connection) -> int:
    """Bytes of the pages that hold something."""
    pages = base.execute("PRAGMA page_count").fetchone()[0]
    free = base.execute("PRAGMA freelist_count").fetchone()[0]
    size = base.execute("PRAGMA page_size").fetchone()[0]
    return int((pages - free) * size)


def pack(base: sqlite3.Connection, until: float) -> int:
    """Make blocks of the rows of all whole blocks that end before ``until``; how many."""
    step = LADDER[0][0]
    span, count = step * CELLS, 0
    for layout in _ids(base, "SELECT DISTINCT layout FROM moments"):
        columns = _columns(base, layout)
        while columns:
            query = "SELECT min(time) FROM moments WHERE layout = ?"
            first = base.execute(query, (layout,)).fetchone()[0]
            if first is None:
                break
            start = (math.ceil(first / span) - 1) * span
            if start + span > until:
                break
            with base:
                _pack_span(base, layout, columns, start, step)
            count += 1
    return count


def _pack_span(
    base: sqlite3.Connection, layout: int, columns: list[Columns], start: float, step: float
) -> None:
    end = start + step * CELLS
    query = "SELECT host, time, vals FROM moments WHERE layout = ? AND time <= ?"
    width = 8 * sum(len(one.places) for one in columns)
    rows = [row for row in base.execute(query, (layout, end)) if len(row[2]) == width]
    hosts = np.array([row[0] for row in rows], dtype=np.int64)
    times = np.array([row[1] for row in rows], dtype=np.float64)
    joined = b"".join(row[2] for row in rows)
    values = plain(np.frombuffer(joined).reshape(len(rows), width // 8))
    for whole in columns:
        there = np.asarray(~np.isnan(values[:, whole.places]).all(axis=0))
        if there.any():
            one = _narrowed(whole, there)
            block = gathered(start, step, hosts, times, values[:, one.places], one.rule)
            _store(base, _layout(base, one.keys), one, block)
    base.execute("DELETE FROM moments WHERE layout = ? AND time <= ?", (layout, end))


def _narrowed(whole: Columns, there: Bools) -> Columns:
    """Only the columns that hold anything, in the order of their keys."""
    order = sorted(np.flatnonzero(there), key=lambda at: whole.keys[at])
    return Columns(
        whole.family,
        tuple(whole.keys[at] for at in order),
        tuple(whole.places[at] for at in order),
        tuple(whole.rule[at] for at in order),
    )


def _layout(base: sqlite3.Connection, keys: tuple[str, ...]) -> int:
    text = json.dumps(keys)
    base.execute("INSERT OR IGNORE INTO layouts (keys) VALUES (?)", (text,))
    return int(base.execute("SELECT id FROM layouts WHERE keys = ?", (text,)).fetchone()[0])


def coarsen(base: sqlite3.Connection, step: float, coarser: float, until: float) -> int:
    """Merge blocks of ``step`` into such of ``coarser`` where those end before ``until``; how many.

    A block that is damaged is dropped: it cannot be read in any case.
    """
    span = coarser * CELLS
    edge = math.floor(until / span) * span if math.isfinite(until) else until
    query = "SELECT DISTINCT layout FROM blocks WHERE step = ? AND start < ?"
    count = 0
    for layout in _ids(base, query, (step, edge)):
        with base:
            for one in _columns(base, layout):
                count += _coarsen(base, layout, one, step, coarser, edge)
    return count


def _coarsen(
    base: sqlite3.Connection, layout: int, one: Columns, step: float, coarser: float, edge: float
) -> int:
    span = coarser * CELLS
    where = "WHERE family = ? AND layout = ? AND step = ? AND start < ?"
    key = (one.family, layout, step, edge)
    groups: dict[float, list[HistoryBlock]] = {}
    count = 0
    for block in _blocks(base, where, key, len(one.places)):
        groups.setdefault(math.floor(block.start / span) * span, []).append(block)
        count += 1
    for start, blocks in groups.items():
        _store(base, layout, one, merged(blocks, start, coarser, one.rule))
    base.execute(f"DELETE FROM blocks {where}", key)
    return count


def _blocks(
    base: sqlite3.Connection, where: str, key: tuple[object, ...], columns: int
) -> Iterator[HistoryBlock]:
    for start, step, hosts, values in base.execute(
        f"SELECT start, step, hosts, vals FROM blocks {where}", key
    ).fetchall():
        try:
            block = decode(start, step, hosts, values)
        except ValueError:
            continue
        if block.values.shape[1] == columns:
            yield block


def _store(base: sqlite3.Connection, layout: int, one: Columns, block: HistoryBlock) -> None:
    """Into the file, together with what is there of the same time."""
    if np.isnan(block.values).all():
        return
    key = (one.family, layout, block.step, block.start)
    where = "WHERE family = ? AND layout = ? AND step = ? AND start = ?"
    there = list(_blocks(base, where, key, len(one.places)))
    if there:
        block = merged([*there, block], block.start, block.step, one.rule)
    hosts, values = encode(block, one.rule)
    size = len(hosts) + len(values)
    insert = "INSERT OR REPLACE INTO blocks VALUES (?, ?, ?, ?, ?, ?, ?)"
    base.execute(insert, (*key, size, hosts, values))


def _give(base: sqlite3.Connection) -> bool:
    """Let something go; False where nothing is left to."""
    sizes = "SELECT step, sum(bytes), min(start), max(start) FROM blocks GROUP BY step"
    steps = base.execute(f"{sizes} ORDER BY 2 DESC LIMIT 1").fetchone()
    raw = base.execute("SELECT min(time), max(time), sum(length(vals)) FROM moments").fetchone()
    if raw[2] is not None and (steps is None or raw[2] > steps[1]):
        least = raw[0] + LADDER[0][0] * CELLS
        if pack(base, min(max(raw[0] + SHARE * (raw[1] - raw[0]), least), raw[1])):
            return True
    if steps is None:
        return _drop_rows(base, raw[0], raw[1])
    step, _, first, last = steps
    edge = first + SHARE * (last - first)
    rungs = [one for one, _ in LADDER] + [LAST_STEP]
    if step < LAST_STEP:
        coarser = rungs[rungs.index(step) + 1]
        return coarsen(base, step, coarser, max(edge, first) + coarser * CELLS) > 0
    with base:
        base.execute("DELETE FROM blocks WHERE step = ? AND start <= ?", (step, edge))
    return True


def _drop_rows(base: sqlite3.Connection, first: float | None, last: float | None) -> bool:
    if first is None or last is None or last <= first:
        return False
    with base:
        base.execute("DELETE FROM moments WHERE time < ?", (first + SHARE * (last - first),))
    return True


def _ids(base: sqlite3.Connection, query: str, values: tuple[float, ...] = ()) -> list[int]:
    return [int(row[0]) for row in base.execute(query, values)]


def _columns(base: sqlite3.Connection, layout: int) -> list[Columns]:
    row = base.execute("SELECT keys FROM layouts WHERE id = ?", (layout,)).fetchone()
    return columns_of(tuple(json.loads(row[0]))) if row is not None else []


def columns_of(keys: tuple[str, ...]) -> list[Columns]:
    """A layout's families."""
    places: dict[str, list[int]] = {}
    rules: dict[str, list[Reduce]] = {}
    for place, key in enumerate(keys):
        name, labels = parse_key(key)
        places.setdefault(name, []).append(place)
        rules.setdefault(name, []).append(of_series(name, labels))
    return [
        Columns(name, tuple(keys[place] for place in found), tuple(found), tuple(rules[name]))
        for name, found in places.items()
    ]


def drop_layouts(base: sqlite3.Connection) -> int:
    """Forget layouts of which nothing is left; how many. Raises sqlite3.Error."""
    used = "SELECT layout FROM moments UNION SELECT layout FROM blocks"
    with base:
        return base.execute(f"DELETE FROM layouts WHERE id NOT IN ({used})").rowcount

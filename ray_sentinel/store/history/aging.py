"""Thins a history file as it grows old: recent samples stay as they came, older ones are thinned.

The resolution: as they came for half an hour, then cells of 10 s until four hours, 30 s until a
day, 2 min until a week, 8 min beyond. If the file would still exceed its size, the kind of cell
that takes most space is reduced: its oldest quarter goes one resolution down, and is dropped only
from the last. So a job of any length keeps its beginning.

There are four roll-ups, and not two, because they are rows of one table that the same lines carry
out, and because of what two would give up (``bench/history.py --ladders``; 28 days of 4 nodes with
40 series each, every 10 s):

================================ ====== ======= ==========================================
roll-ups                         MiB    CPU s   a cell at the age of 2 h, 12 h, 3 d, 28 d
================================ ====== ======= ==========================================
four: 10 s, 30 s, 2 min, 8 min   5.1    17.8    10 s, 30 s, 2 min, 8 min
two: 30 s, 8 min                 3.6    5.5     30 s, 30 s, 8 min, 8 min
two: 10 s, 2 min                 11.0   12.7    10 s, 10 s, 2 min, 2 min
================================ ====== ======= ==========================================

Two coarse ones save a third of the space and show the last hours and days, about which most people
ask, three and four times as coarsely; two fine ones take twice the space, and fall further behind
with each day. The time is 0.0007 % of a core at most.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import sqlite3
from functools import lru_cache
from typing import TypeAlias

import msgspec
import numpy as np

from ray_sentinel.diagnose.reduction import of_series
from ray_sentinel.store.history.keys import parse_key
from ray_sentinel.store.history.table import (
    CELLS,
    HistoryTable,
    Rule,
    decode,
    encode,
    reduced,
    stacked,
)

AS_IT_CAME = 0.0
"""Stands in place of a cell's seconds for samples that are kept as they came."""
Ladder: TypeAlias = tuple[tuple[float, float], ...]
"""(Seconds of a cell, the age until which it stays). Each divides the next."""
LADDER: Ladder = (
    (AS_IT_CAME, 1800.0),
    (10.0, 4 * 3600.0),
    (30.0, 86400.0),
    (120.0, 7 * 86400.0),
    (480.0, math.inf),
)
LAST_STEP = 1920.0
"""Seconds of the coarsest cells, used only if space runs out: a coarser series would tell
nothing."""
STEPS = (*(step for step, _ in LADDER), LAST_STEP)
SHARE = 0.25
"""Share of the time span that is made coarser, or dropped, in one round."""
MOST_TURNS = 40
"""Most rounds of making room in one call; the next call goes on."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS layouts (id INTEGER PRIMARY KEY, keys TEXT UNIQUE);
CREATE TABLE IF NOT EXISTS hosts (id INTEGER PRIMARY KEY, name TEXT UNIQUE);
CREATE TABLE IF NOT EXISTS moments
  (layout INTEGER, time REAL, host INTEGER, vals BLOB, PRIMARY KEY (layout, time, host));
CREATE TABLE IF NOT EXISTS blocks
  (family TEXT, layout INTEGER, step REAL, start REAL, bytes INTEGER, hosts BLOB, vals BLOB,
   PRIMARY KEY (family, layout, step, start));
CREATE INDEX IF NOT EXISTS blocks_by_age ON blocks (step, start, bytes);
"""
"""Tables of the file. ``moments`` are rows as they came; a block is of one family, and its layout
has the columns of this family only, so that what comes and goes in one family leaves the others'
blocks whole."""
_FIRST_ROW = "SELECT min((SELECT min(time) FROM moments WHERE layout = id)) FROM layouts"
_FIRST_BLOCK = "SELECT min(start) FROM blocks WHERE step = ?"
_LAYOUTS_OF_ROWS = """SELECT id, keys FROM layouts WHERE EXISTS
                      (SELECT 1 FROM moments WHERE layout = id AND time <= ?)"""
_LAYOUTS_OF_BLOCKS = """SELECT id, keys FROM layouts
                        WHERE id IN (SELECT layout FROM blocks WHERE step = ? AND start < ?)"""
_SIZES = """SELECT step, sum(bytes) AS size, min(start), max(start) FROM blocks GROUP BY step
            UNION ALL SELECT 0.0, sum(length(vals)), min(time), max(time) FROM moments
            ORDER BY size DESC"""


class FamilyColumns(msgspec.Struct, frozen=True):
    """One family's columns: their places in a layout, in the order of their keys."""

    name: str
    places: tuple[int, ...]
    keys: tuple[str, ...]
    rule: Rule


def age(base: sqlite3.Connection, now: float, max_bytes: int, ladder: Ladder = LADDER) -> None:
    """Thin what is old at ``now``, as ``ladder`` says, and more until ``max_bytes`` are kept.

    Each part is a transaction. Raises sqlite3.Error if the file cannot be written.
    """
    for (step, until), (coarser, _) in itertools.pairwise(ladder):
        roll_up(base, step, coarser, now - until)
    thin(base, max_bytes)
    base.execute("PRAGMA incremental_vacuum").fetchall()


def thin(base: sqlite3.Connection, max_bytes: int) -> None:
    """Drop the least useful samples until the file is within ``max_bytes``."""
    for _ in range(MOST_TURNS):
        if used_bytes(base) <= max_bytes or not _drop_least_useful(base):
            break


def used_bytes(base: sqlite3.Connection) -> int:
    """Bytes of the pages that are in use."""
    names = ("page_count", "freelist_count", "page_size")
    pages, free, size = (base.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
    return int((pages - free) * size)


def _drop_least_useful(base: sqlite3.Connection) -> bool:
    """Make the oldest of what takes most space coarser, or drop it; False if nothing is left."""
    edge = 0.0
    for step, size, first, last in base.execute(_SIZES).fetchall():
        if size is None:
            continue
        edge = first + SHARE * (last - first)
        if step == LAST_STEP:
            with base:
                base.execute("DELETE FROM blocks WHERE step = ? AND start <= ?", (step, edge))
            return True
        coarser = STEPS[STEPS.index(step) + 1]
        until = edge + coarser * CELLS
        if roll_up(base, step, coarser, until if step else min(until, last)):
            return True
    with base:
        return base.execute("DELETE FROM moments WHERE time < ?", (edge,)).rowcount > 0


def roll_up(base: sqlite3.Connection, step: float, coarser: float, until: float) -> int:
    """Merge cells of ``step`` seconds, or rows as they came, into cells of ``coarser`` seconds:
    those of all whole blocks that end before ``until``. Returns the number of such blocks.

    A damaged block is dropped, because it cannot be read in any case.
    """
    span = coarser * CELLS
    edge, count = math.floor(until / span) * span, 0
    while True:
        query = base.execute(_FIRST_BLOCK, (step,)) if step else base.execute(_FIRST_ROW)
        first = query.fetchone()[0]
        if first is None or first >= edge:
            return count
        count += 1
        end = (math.floor(first / span) + 1) * span
        place = (_LAYOUTS_OF_BLOCKS, (step, end)) if step else (_LAYOUTS_OF_ROWS, (end,))
        for layout, keys in base.execute(*place).fetchall():
            with base:
                _roll_up(base, layout, tuple(json.loads(keys)), step, coarser, end)
        if step:
            # What is left belongs to no layout.
            with base:
                base.execute("DELETE FROM blocks WHERE step = ? AND start < ?", (step, end))


def _roll_up(
    base: sqlite3.Connection,
    layout: int,
    keys: tuple[str, ...],
    step: float,
    coarser: float,
    end: float,
) -> None:
    """The rows, or the blocks, of one layout until ``end``."""
    families = families_of(keys)
    if step:
        where = "blocks WHERE family = ? AND layout = ? AND step = ? AND start < ?"
        place: tuple[object, ...] = (families[0].name, layout, step, end)
        tables = _blocks(base, where, place, len(keys))
    else:
        where, place = "moments WHERE layout = ? AND time <= ?", (layout, end)
        rows = base.execute(f"SELECT host, time, vals FROM {where}", place).fetchall()
        tables = [HistoryTable.of(rows, len(keys))]
    for family in families if tables else ():
        table = stacked([one.columns(family.places) for one in tables])
        _store(base, family, table, coarser)
    base.execute(f"DELETE FROM {where}", place)


def _store(
    base: sqlite3.Connection, family: FamilyColumns, table: HistoryTable, step: float
) -> None:
    """Rows of a family as blocks, each together with what is there of the same time."""
    there = table.is_there()
    used = np.flatnonzero(there.any(axis=0))
    if not used.size:
        return
    rule = tuple(family.rule[at] for at in used)
    layout = _layout(base, tuple(family.keys[at] for at in used))
    rows = reduced(table.columns(used).rows(np.asarray(there.any(axis=1))), step, rule)
    spans = np.ceil(rows.times / (step * CELLS)) - 1
    for span in np.unique(spans):
        block, start = rows.rows(spans == span), float(span * step * CELLS)
        key = (family.name, layout, step, start)
        where = "blocks WHERE family = ? AND layout = ? AND step = ? AND start = ?"
        if before := _blocks(base, where, key, len(rule)):
            block = reduced(stacked([*before, block]), step, rule)
        hosts, values = encode(block, start, step, rule)
        insert = "INSERT OR REPLACE INTO blocks VALUES (?, ?, ?, ?, ?, ?, ?)"
        base.execute(insert, (*key, len(hosts) + len(values), hosts, values))


def _blocks(
    base: sqlite3.Connection, where: str, place: tuple[object, ...], columns: int
) -> list[HistoryTable]:
    tables = []
    for row in base.execute(f"SELECT start, step, hosts, vals FROM {where}", place).fetchall():
        with contextlib.suppress(ValueError):
            tables.append(decode(row, columns))
    return tables


def _layout(base: sqlite3.Connection, keys: tuple[str, ...]) -> int:
    text = json.dumps(keys)
    base.execute("INSERT OR IGNORE INTO layouts (keys) VALUES (?)", (text,))
    return int(base.execute("SELECT id FROM layouts WHERE keys = ?", (text,)).fetchone()[0])


@lru_cache(maxsize=1024)
def families_of(keys: tuple[str, ...]) -> tuple[FamilyColumns, ...]:
    """The families of a layout."""
    places: dict[str, list[int]] = {}
    for place in sorted(range(len(keys)), key=keys.__getitem__):
        places.setdefault(parse_key(keys[place])[0], []).append(place)
    return tuple(
        FamilyColumns(
            name,
            tuple(found),
            tuple(keys[place] for place in found),
            tuple(of_series(*parse_key(keys[place])) for place in found),
        )
        for name, found in places.items()
    )


def drop_layouts(base: sqlite3.Connection) -> int:
    """Delete layouts without any samples. Returns how many. Raises sqlite3.Error."""
    used = "SELECT layout FROM moments UNION SELECT layout FROM blocks"
    with base:
        return base.execute(f"DELETE FROM layouts WHERE id NOT IN ({used})").rowcount

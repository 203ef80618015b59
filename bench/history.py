"""What the coordinator's embedded history takes: disk, CPU, and the time to read a family.

    python bench/history.py [--nodes 1000] [--hours 1] [--json]
    python bench/history.py --formats
    python bench/history.py --ladders

What ``--nodes`` nodes are asked to send in some hours is packed and written as fast as possible;
the times are the samples'. Targets: 200 MiB more of resident memory, 4 % of a core, a file that
keeps to its size and holds all of it. Exit code 1 if one is missed. ``--formats`` compares ways to
store older samples in SQLite (``ray_sentinel/store/history/table.py``), ``--ladders`` how often
they are made coarser (``ray_sentinel/store/history/aging.py``).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sqlite3
import sys
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
from processes import most_resident

from ray_sentinel.actors.coordinator.history import IMAGE_BYTES, wanted
from ray_sentinel.diagnose.series import Reduce, Selector
from ray_sentinel.store.history.aging import AS_IT_CAME, LADDER, Ladder, age, used_bytes
from ray_sentinel.store.history.file import HistoryFile
from ray_sentinel.store.history.source import HistorySource
from ray_sentinel.store.history.table import CELLS, HistoryTable, encode
from ray_sentinel.store.history.writer import MAX_BYTES, History, RowPacker, Rows, history_image

HOUR = 3600.0
SAVE_SECONDS = 30.0


def reports_of(nodes: int, series: int) -> list[dict[str, float]]:
    """What each node sends: eight GPUs that make noise, and its ranks."""
    names = [f'hw_gpu_value_{i // 8}{{gpu="{i % 8}"}}' for i in range(series - 8)]
    return [
        {name: random.random() for name in names}
        | {f'train_step{{job="j",rank="{8 * node + i}"}}': 1.0 for i in range(8)}
        for node in range(nodes)
    ]


class Filling:
    """Packs the reports of some hours and writes them to a file, as the coordinator does."""

    def __init__(self, nodes: int, folder: Path) -> None:
        self.asked = wanted(nodes)
        self.packer, self.file = RowPacker(), HistoryFile(folder, "bench")
        self.reports = reports_of(nodes, self.asked.series)
        self.longest_put = self.busy = 0.0

    def run(self, hours: float) -> None:
        """Pack and write the reports of ``hours``."""
        moment, saved = 0.0, 0.0
        rows: list[Rows] = []
        while moment <= hours * HOUR:
            begun = time.process_time()
            for node, report in enumerate(self.reports):
                name = random.choice(list(report)) if node % 7 else 'hw_gpu_value_0{gpu="0"}'
                report[name] = random.random()
                rows += self.packer.pack(moment, f"node{node}", report)
            if moment - saved >= SAVE_SECONDS or moment == 0.0:
                self._save(rows, moment)
                rows, saved = [], moment
            self.busy += time.process_time() - begun
            moment += self.asked.seconds

    def _save(self, rows: list[Rows], until: float) -> None:
        before = time.perf_counter()
        if not self.file.put(rows, until):
            raise SystemExit(self.file.problem)
        self.longest_put = max(self.longest_put, time.perf_counter() - before)


def reading_ms(source: HistorySource, hours: float) -> float:
    """Milliseconds to read a family of eight series a node on a view's axis."""
    before = time.perf_counter()
    step = max(10.0, hours * HOUR / 3000)
    source.query_range(Selector("hw_gpu_value_0"), 0.0, hours * HOUR, step, "avg")
    return 1000 * (time.perf_counter() - before)


def measure(nodes: int, hours: float, folder: Path) -> dict[str, float]:
    """Fill it and read it."""
    before = most_resident()
    filling = Filling(nodes, folder)
    filling.run(hours)
    grown = most_resident() - before
    file = filling.file
    assert file.history is not None
    assert file.path is not None
    size = file.history.size()
    before = time.perf_counter()
    image = len(history_image((), IMAGE_BYTES, of=file.history))
    copying = time.perf_counter() - before
    path = file.path
    file.close()
    source = HistorySource.open(path)
    begin, end = source.span() or (0.0, 0.0)
    return {
        "nodes": nodes,
        "hours": hours,
        "series_a_node": filling.asked.series,
        "seconds_between": filling.asked.seconds,
        "resident_mebibytes": grown,
        "file_hours_kept": (end - begin) / HOUR,
        "file_mebibytes": size / 2**20,
        "file_core_percent": 100 * filling.busy / (hours * HOUR),
        "longest_write_ms": 1000 * filling.longest_put,
        "file_read_family_ms": reading_ms(source, hours),
        "image_mebibytes": image / 2**20,
        "image_seconds": copying,
    }


def stored(name: str, base: sqlite3.Connection, begun: float) -> None:
    """Say what ``FORMAT_VALUES`` in a file cost since ``begun``."""
    base.commit()
    busy, size = time.process_time() - begun, used_bytes(base)
    base.close()
    print(f"{name:24} {size / FORMAT_VALUES:6.2f} B/value {1e6 * busy / FORMAT_VALUES:6.2f} s/M")


FORMAT_NODES, FORMAT_SERIES, FORMAT_CELLS = 8, 600, 720
FORMAT_VALUES = FORMAT_NODES * FORMAT_SERIES * FORMAT_CELLS


def compare_formats(folder: Path) -> None:
    """A third of the series each noise, counters and constants; a family has eight of a node."""
    dice = np.random.default_rng(1)
    shape = (FORMAT_NODES, FORMAT_SERIES // 3, FORMAT_CELLS)
    values = np.empty((FORMAT_NODES, FORMAT_SERIES, FORMAT_CELLS))
    values[:, 0::3] = np.round(dice.normal(300.0, 20.0, shape), 1)
    values[:, 1::3] = np.cumsum(dice.integers(0, 100_000, shape), axis=2)
    values[:, 2::3] = dice.integers(0, 5, (*shape[:2], 1))
    series = list(np.ndindex(*values.shape[:2]))

    base, begun = sqlite3.connect(folder / "rows.db"), time.process_time()
    base.execute("CREATE TABLE s (series, time, value, PRIMARY KEY (series, time)) WITHOUT ROWID")
    for number, place in enumerate(series):
        rows = ((number, 30 * at, value) for at, value in enumerate(values[place].tolist()))
        base.executemany("INSERT INTO s VALUES (?, ?, ?)", rows)
    stored("a row a value", base, begun)

    base, begun = sqlite3.connect(folder / "series.db"), time.process_time()
    base.execute("CREATE TABLE s (series, start, vals, PRIMARY KEY (series, start))")
    for number, place in enumerate(series):
        for at in range(0, FORMAT_CELLS, CELLS):
            packed = zlib.compress(values[place][at : at + CELLS].tobytes())
            base.execute("INSERT INTO s VALUES (?, ?, ?)", (number, at, packed))
    stored("zlib, 60 of a series", base, begun)

    base, begun = sqlite3.connect(folder / "blocks.db"), time.process_time()
    base.execute("CREATE TABLE b (family, start, hosts, vals, PRIMARY KEY (family, start))")
    rule: tuple[Reduce, ...] = ("avg", "last", "last") * 3
    hosts = np.repeat(np.arange(FORMAT_NODES), CELLS)
    times = np.tile(30.0 * np.arange(1, CELLS + 1), FORMAT_NODES)
    for family in range(0, FORMAT_SERIES, 8):
        kinds = (rule * 2)[family % 3 :][:8]
        for at in range(0, FORMAT_CELLS, CELLS):
            part = values[:, family : family + 8, at : at + CELLS].transpose(0, 2, 1)
            table = HistoryTable(hosts, times, np.ascontiguousarray(part).reshape(-1, 8))
            block = encode(table, 0.0, 30.0, kinds)
            base.execute("INSERT INTO b VALUES (?, ?, ?, ?)", (family, at, *block))
    stored("a block of all hosts", base, begun)


DAY = 86400.0
LADDERS: dict[str, Ladder] = {
    "four, as shipped": LADDER,
    "two, as small": ((AS_IT_CAME, 1800.0), (30.0, DAY), (480.0, float("inf"))),
    "two, as fine": ((AS_IT_CAME, 1800.0), (10.0, DAY), (120.0, float("inf"))),
}
LADDER_NODES, LADDER_DAYS, LADDER_SECONDS = 4, 28, 10.0
AGES = {"2 h": 2 * HOUR, "12 h": 12 * HOUR, "3 d": 3 * DAY, "28 d": 28 * DAY}


def hour_of_rows(dice: np.random.Generator, begin: float, counted: np.ndarray) -> list[Rows]:
    """For each node 24 gauges that make noise, 8 counters and 8 constants."""
    gpus = range(8)
    gauges = [f'hw_gpu_{name}{{gpu="{i}"}}' for name in ("power", "heat", "clock") for i in gpus]
    counters = [f'hw_gpu_errors_total{{gpu="{i}"}}' for i in gpus]
    constants = [f'hw_gpu_limit{{gpu="{i}"}}' for i in gpus]
    times = begin + LADDER_SECONDS * np.arange(1, HOUR / LADDER_SECONDS + 1)
    rows = []
    for node in range(LADDER_NODES):
        noise = np.round(dice.normal(300.0, 20.0, (times.size, len(gauges))), 1)
        counts = counted[node] + np.cumsum(dice.integers(0, 100, (times.size, 8)), axis=0)
        counted[node] = counts[-1]
        values = np.hstack([noise, counts, np.full((times.size, 8), 700.0)])
        rows += [
            (at, f"n{node}", row.tobytes()) for at, row in zip(times.tolist(), values, strict=True)
        ]
    return [Rows((*gauges, *counters, *constants), tuple(rows))]


def compare_ladders(folder: Path) -> None:
    """The same days of the same nodes, made coarser in each way; none is short of space."""
    print(f"{'roll-ups':20} {'MiB':>6} {'CPU s':>6}  a cell at the age of {', '.join(AGES)}")
    for number, (name, ladder) in enumerate(LADDERS.items()):
        dice, counted = np.random.default_rng(1), np.zeros((LADDER_NODES, 8))
        history, busy = History(folder / f"{number}.db"), 0.0
        with contextlib.closing(sqlite3.connect(history.path)) as base:
            for hour in range(24 * LADDER_DAYS):
                history.put(hour_of_rows(dice, hour * HOUR, counted))
                begun = time.process_time()
                age(base, (hour + 1) * HOUR, 1 << 40, ladder)
                busy += time.process_time() - begun
            size = used_bytes(base)
        history.close()
        cells = [next(step for step, until in ladder if old < until) for old in AGES.values()]
        told = ", ".join(f"{step:g} s" for step in cells)
        print(f"{name:20} {size / 2**20:6.1f} {busy:6.1f}  {told}", flush=True)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--formats", action="store_true")
    parser.add_argument("--ladders", action="store_true")
    args = parser.parse_args()
    if args.ladders:
        with tempfile.TemporaryDirectory() as folder:
            compare_ladders(Path(folder))
        return 0
    if args.formats:
        with tempfile.TemporaryDirectory() as folder:
            compare_formats(Path(folder))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        found = measure(args.nodes, args.hours, Path(folder))
    if args.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:22} {value:.2f}")
    whole = found["file_hours_kept"] >= args.hours - 480.0 / HOUR
    bounded = found["file_mebibytes"] <= 1.1 * MAX_BYTES / 2**20
    well = found["resident_mebibytes"] <= 200 and found["file_core_percent"] <= 4.0
    return 0 if whole and bounded and well else 1


if __name__ == "__main__":
    sys.exit(main())

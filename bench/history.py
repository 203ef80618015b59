"""What the coordinator's embedded history takes: memory, disk, CPU, and the time to read a family.

    python bench/history.py [--nodes 1000] [--hours 1] [--json]

Some hours of what so many nodes are asked to send are kept as fast as it can be, in memory and in
the file; the times are the samples'. Targets: 200 MiB more of resident memory, 1 % of a core for
memory and 3 % for the file, which keeps to its size; half an hour is in memory, all in the file.
Exit code 1 if one is missed.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
import tempfile
import time
from pathlib import Path

from ray_sentinel.actors.coordinator.history import IMAGE_BYTES, MEMORY_BYTES, wanted
from ray_sentinel.diagnose.series import Selector
from ray_sentinel.store.history import MAX_BYTES, MEMORY_SECONDS, History
from ray_sentinel.store.history_file import HistoryFile
from ray_sentinel.store.history_source import HistorySource

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
    """Takes the reports of some hours into memory and from there into a file."""

    def __init__(self, nodes: int, folder: Path) -> None:
        self.asked = wanted(nodes)
        self.memory, self.file = History(max_bytes=MEMORY_BYTES), HistoryFile(folder, "bench")
        self.reports = reports_of(nodes, self.asked.series)
        self.longest_append = self.longest_put = self.busy_memory = self.busy_file = 0.0

    def run(self, hours: float) -> None:
        moment, saved = 0.0, 0.0
        while moment <= hours * HOUR:
            begun = time.process_time()
            for node, report in enumerate(self.reports):
                name = random.choice(list(report)) if node % 7 else 'hw_gpu_value_0{gpu="0"}'
                report[name] = random.random()
                before = time.perf_counter()
                self.memory.append(moment, f"node{node}", report)
                self.longest_append = max(self.longest_append, time.perf_counter() - before)
            self.busy_memory += time.process_time() - begun
            if moment - saved >= SAVE_SECONDS or moment == 0.0:
                self._save(saved, moment)
                saved = moment + 1e-3
            moment += self.asked.seconds

    def _save(self, since: float, until: float) -> None:
        begun, before = time.process_time(), time.perf_counter()
        if not self.file.put(self.memory.rows(since, until), until):
            raise SystemExit(self.file.problem)
        self.longest_put = max(self.longest_put, time.perf_counter() - before)
        self.busy_file += time.process_time() - begun


def reading_ms(source: HistorySource, hours: float) -> float:
    """Milliseconds to read a family of eight series a node on a view's axis."""
    before = time.perf_counter()
    step = max(10.0, hours * HOUR / 3000)
    source.query_range(Selector("hw_gpu_value_0"), 0.0, hours * HOUR, step, "avg")
    return 1000 * (time.perf_counter() - before)


def measure(nodes: int, hours: float, folder: Path) -> dict[str, float]:
    """Fill it and read it."""
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    filling = Filling(nodes, folder)
    filling.run(hours)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident
    memory, file = filling.memory, filling.file
    first, last = memory.source().span() or (0.0, 0.0)
    assert file.history is not None
    assert file.path is not None
    size = file.history.size()
    before = time.perf_counter()
    image = len(file.history.image(IMAGE_BYTES))
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
        "memory_seconds_kept": last - first,
        "memory_mebibytes": memory.size() / 2**20,
        "resident_mebibytes": grown / 1024,
        "memory_core_percent": 100 * filling.busy_memory / (hours * HOUR),
        "longest_append_ms": 1000 * filling.longest_append,
        "memory_read_family_ms": reading_ms(memory.source(), 0.5),
        "file_hours_kept": (end - begin) / HOUR,
        "file_mebibytes": size / 2**20,
        "file_core_percent": 100 * filling.busy_file / (hours * HOUR),
        "longest_write_ms": 1000 * filling.longest_put,
        "file_read_family_ms": reading_ms(source, hours),
        "image_mebibytes": image / 2**20,
        "image_seconds": copying,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(args.nodes, args.hours, Path(folder))
    if args.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:22} {value:.2f}")
    lost = 2 * found["seconds_between"]
    kept = found["memory_seconds_kept"] >= MEMORY_SECONDS - lost
    whole = found["file_hours_kept"] >= args.hours - 480.0 / HOUR
    bounded = found["file_mebibytes"] <= 1.1 * MAX_BYTES / 2**20
    cheap = found["memory_core_percent"] <= 1.0 and found["file_core_percent"] <= 3.0
    well = found["resident_mebibytes"] <= 200 and cheap
    return 0 if kept and whole and bounded and well else 1


if __name__ == "__main__":
    sys.exit(main())

"""What the coordinator's embedded history takes: memory, CPU, and the time to read a family.

    python bench/history.py [--nodes 1000] [--json]

An hour of what so many nodes are asked to send is kept as fast as it can be; the times are the
samples'. Targets: 100 MiB more of resident memory, 1 % of a core, and half an hour is there.
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

from ray_sentinel.actors.history import MEMORY_BYTES, wanted
from ray_sentinel.diagnose.series import Selector
from ray_sentinel.store.history import MEMORY_SECONDS, History

HOUR = 3600.0


def measure(nodes: int) -> dict[str, float]:
    """Fill it and read it."""
    asked = wanted(nodes)
    history = History(max_bytes=MEMORY_BYTES)
    names = [f'hw_gpu_value_{i // 8}{{gpu="{i % 8}"}}' for i in range(asked.series - 8)]
    reports = [
        {name: random.random() for name in names}
        | {f'train_step{{job="j",rank="{8 * node + i}"}}': 1.0 for i in range(8)}
        for node in range(nodes)
    ]
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    moment, longest, begun = 0.0, 0.0, time.process_time()
    while moment <= HOUR:
        for node, report in enumerate(reports):
            before = time.perf_counter()
            history.append(moment, f"node{node}", report)
            longest = max(longest, time.perf_counter() - before)
        moment += asked.seconds
    busy = time.process_time() - begun
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident
    first, last = history.source().span() or (0.0, 0.0)
    before = time.perf_counter()
    history.source().samples(Selector("hw_gpu_value_0"), 0.0, HOUR)
    reading = time.perf_counter() - before
    with tempfile.TemporaryDirectory() as folder:
        before = time.perf_counter()
        history.save(Path(folder) / "series.db")
        saving = time.perf_counter() - before
    return {
        "nodes": nodes,
        "series_a_node": asked.series,
        "seconds_between": asked.seconds,
        "seconds_kept": last - first,
        "mebibytes": history.size() / 2**20,
        "resident_mebibytes": grown / 1024,
        "core_percent": 100 * busy / HOUR,
        "longest_append_ms": 1000 * longest,
        "read_family_ms": 1000 * reading,
        "copy_to_file_ms": 1000 * saving,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = measure(args.nodes)
    if args.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:20} {value:.2f}")
    kept = found["seconds_kept"] >= MEMORY_SECONDS - 2 * found["seconds_between"]
    well = found["resident_mebibytes"] <= 100 and found["core_percent"] <= 1.0
    return 0 if kept and well else 1


if __name__ == "__main__":
    sys.exit(main())

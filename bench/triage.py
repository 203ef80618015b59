"""How long triage takes: a job of 100 MB in one file, and 64 nodes' folders of a given size.

    python bench/triage.py [--megabytes 100] [--nodes 64] [--node-megabytes 20]

The logs are made of the chatter, the decoys and the failure of the tests' corpus. Prints one JSON
document: wall and CPU seconds, the peak memory of the reading process, and whether the answer was
right. 10 GB over 64 nodes is ``--node-megabytes 160``.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.log_corpus.beginnings import decoys
from tests.support.log_corpus.job import Job, maxtext

_BLOCK_STEPS = 4000


def main() -> None:
    """Make the logs, read them in a process of their own, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--node-megabytes", type=int, default=20)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        one = root / "one"
        one.mkdir()
        write_log(one / "train.log", args.megabytes << 20, fails=True)
        many = root / "many"
        for node in range(args.nodes):
            place = many / "ray_logs" / f"node{node:03d}"
            place.mkdir(parents=True)
            name = f"worker-{'ab' * 28}-01000000-{4000 + node}.err"
            write_log(place / name, args.node_megabytes << 20, fails=node == args.nodes // 3)
        print(json.dumps({"one_file": measure(one), "nodes": measure(many)}, indent=2))


def write_log(path: Path, size: int, *, fails: bool) -> None:
    """A log of about ``size`` bytes: a block of healthy steps again and again, then the failure."""
    job = Job(seed=1)
    job.train(_BLOCK_STEPS, maxtext)
    decoys(job)
    job.train(10, maxtext)
    block = job.text().encode()
    end = Job(seed=2)
    end.now = job.now
    end.traceback(3, "IndexError", "list index out of range")
    with path.open("wb") as file:
        while file.tell() < size:
            file.write(block)
        if fails:
            file.write(end.text().encode())


def measure(root: Path) -> dict[str, object]:
    """Run the command on ``root``."""
    command = [sys.executable, "-m", "ray_sentinel.cli.main", "triage", str(root), "--json"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        output = child.communicate()[0]
    wall = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    answer = json.loads(output)
    return {
        "bytes": answer["bytes"],
        "files": answer["files"],
        "wall_seconds": round(wall, 2),
        "cpu_seconds": round(after.ru_utime - before.ru_utime, 2),
        "peak_mebibytes": round(after.ru_maxrss / 1024, 1),
        "class": answer["class"],
        "right": answer["class"] == "python-exception",
        "sampled_files": len(answer["sampled"]),
        "load": os.getloadavg()[0],
    }


if __name__ == "__main__":
    main()

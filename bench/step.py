"""What progress costs: a step in the rank, a record and a process in the agent.

    python bench/step.py [--json] [--processes 300] [--ranks 8]

Times are medians over repeated batches on the machine it runs on. ``--processes`` idle processes
are started so that a pass over /proc has that many to look at, ``--ranks`` real ranks so that a
whole look of an agent is measured with records, states and exits.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ray_sentinel.model.identity import Node
from ray_sentinel.progress.discovery.ranks import Discovery
from ray_sentinel.progress.proc.process_state import StateReader
from ray_sentinel.progress.proc.processes import SETTLE_SECONDS, ProcessTable
from ray_sentinel.progress.rank import lifecycle, who
from ray_sentinel.progress.rank.writer import ProgressWriter
from ray_sentinel.progress.reader import RecordReader
from ray_sentinel.progress.watch import NodeWatch

RANK = """
import time
from ray_sentinel.progress.rank import lifecycle
from ray_sentinel.progress.rank import who
from ray_sentinel.progress.rank.writer import ProgressWriter
writer = ProgressWriter.open(who.resolve())
life = lifecycle.watch_over(writer)
while True:
    time.sleep(0.1)
    writer.step(loss=1.0, lr=0.1, norm=2.0)
"""


def median(call: Callable[[], object], number: int, repeat: int = 25) -> float:
    """Seconds of one call: the median over batches."""
    return statistics.median(timeit.repeat(call, number=number, repeat=repeat)) / number


def in_the_rank(folder: Path) -> dict[str, float]:
    """What each call in a rank takes, by a name with its unit."""
    started = time.perf_counter()
    writer = ProgressWriter.open(who.resolve("bench"), [folder])
    life = lifecycle.watch_over(writer)
    attach = time.perf_counter() - started
    values = {"loss": 1.0, "lr": 0.1, "norm": 2.0}
    writer.step(0, **values)

    def phase() -> None:
        with writer.phase("checkpoint"):
            pass

    result = {
        "open a record and start the companion, ms": attach * 1e3,
        "step(), us": median(lambda: writer.step(), 20_000) * 1e6,
        "step(n), us": median(lambda: writer.step(5), 20_000) * 1e6,
        "step(n) with three scalars, us": median(lambda: writer.step(5, **values), 20_000) * 1e6,
        "an empty call, us (contained in the above)": median(lambda: None, 20_000) * 1e6,
        "a phase, entered and left, us": median(phase, 2_000) * 1e6,
    }
    before, started = time.process_time(), time.monotonic()
    time.sleep(5)
    share = (time.process_time() - before) / (time.monotonic() - started)
    result["the companion, % of a core"] = 100 * share
    life.end()
    return result


@contextmanager
def idle(count: int) -> Iterator[None]:
    """Run idle processes in the block."""
    processes = [subprocess.Popen(["sleep", "600"]) for _ in range(count)]
    yield
    for process in processes:
        process.kill()
        process.wait()


@contextmanager
def ranks(count: int, folder: Path) -> Iterator[list[int]]:
    """Run ranks with records in the block; yields their pids."""
    environ = {**os.environ, "RAY_SENTINEL_RECORD_DIR": str(folder), "RAY_SENTINEL_JOB": "bench"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RANK],
            env={**environ, "RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_RANK": str(rank)},
        )
        for rank in range(count)
    ]
    deadline = time.monotonic() + 60
    while len(list(folder.glob("*.record"))) < count and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(2)
    yield [process.pid for process in processes]
    for process in processes:
        process.kill()
        process.wait()


def in_the_agent(folder: Path, pids: list[int]) -> dict[str, float]:
    """What each part of an agent's look takes, by a name with its unit."""
    reader = RecordReader([folder])
    views = reader.scan()
    table = ProcessTable()
    started = time.perf_counter()
    processes = table.refresh(time.monotonic())
    first = time.perf_counter() - started
    while any(not process.settled for process in processes.values()):
        time.sleep(0.5)
        table.refresh(time.monotonic())
    discovery, states = Discovery(), StateReader()
    view = views[0]

    def state() -> None:
        reading = states.read(
            view.key,
            time.monotonic(),
            stepping_tid=view.stepping_tid,
            companion_tid=view.companion_tid,
            stamp=time.monotonic(),
        )
        assert reading is not None

    watch = NodeWatch(Node(id="n", host="h", address=""), folders=[folder])
    watch.poll()
    ranks, _ = watch.poll()
    assert {item.rank.process.pid for item in ranks} >= set(pids)
    time.sleep(SETTLE_SECONDS)
    looks = [median(lambda: watch.poll(), 4, 25)]
    result = {
        "processes on the machine": float(len(processes)),
        "records": float(len(views)),
        "first pass over /proc, ms": first * 1e3,
        "a later pass over /proc, ms": median(lambda: table.refresh(0), 4) * 1e3,
        "finding the ranks in it, ms": median(lambda: discovery.discover(processes), 20) * 1e3,
        "reading a record, us": median(reader.scan, 100) / len(views) * 1e6,
        "the state of a healthy rank, us": median(state, 100) * 1e6,
        "a whole look of the agent, ms": looks[0] * 1e3,
    }
    watch.close()
    reader.close()
    return result


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--processes", type=int, default=300)
    parser.add_argument("--ranks", type=int, default=8)
    arguments = parser.parse_args()
    folders = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=folders) as folder:
        figures = in_the_rank(Path(folder))
    have = sum(name.isdigit() for name in os.listdir("/proc"))
    with tempfile.TemporaryDirectory(dir=folders) as folder:
        more = max(0, arguments.processes - have - arguments.ranks)
        with idle(more), ranks(arguments.ranks, Path(folder)) as pids:
            figures |= in_the_agent(Path(folder), pids)
    if arguments.json:
        print(json.dumps(figures, indent=2))
        return
    for name, value in figures.items():
        print(f"{name:45} {value:10.3f}")


if __name__ == "__main__":
    main()

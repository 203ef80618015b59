"""What Ray's calls add to the coordinator's work with many nodes: ``bench/fleet.py`` over real Ray.

    python bench/fleet_ray.py [--nodes 200 500 1000] [--seconds 40] [--callers 2]

The coordinator is an asynchronous Ray actor, as the real one is, and the simulated agents call it
from a few processes, each as many agents as its share; a real agent has a process of its own, so
what the connections of 1,000 processes cost comes on top. Beside it stands the same actor whose
method does nothing: what is left of the first figure is ours. Prints, for each number of nodes, the
share of a core of the actor's process, how many reports a second it answered, and how long the
callers waited.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import ray  # noqa: E402
from fleet import WARM_SECONDS, FleetCoordinator, resident  # noqa: E402
from nodes import PER_NODE, SimulatedNode, hardware  # noqa: E402

from ray_sentinel.actors.coordinator.roster import LONGEST_INTERVAL  # noqa: E402
from ray_sentinel.actors.messages import Receipt, pack, unpack  # noqa: E402
from ray_sentinel.config import Config  # noqa: E402


class RayCoordinator:
    """Takes reports as the coordinator does, or answers them unread."""

    def __init__(self, folder: str, idle: bool, interval: float) -> None:
        self._fleet = None if idle else FleetCoordinator(Path(folder))
        self._nothing = pack(Receipt(interval=interval))
        self._answered = 0

    async def report(self, data: bytes) -> bytes:
        self._answered += 1
        return self._nothing if self._fleet is None else self._fleet.answer(data)

    async def figures(self) -> tuple[float, int, float]:
        """Seconds of CPU, reports answered, MiB."""
        return time.process_time(), self._answered, resident()

    async def close(self) -> None:
        if self._fleet is not None:
            await asyncio.to_thread(self._fleet.close)


class Callers:
    """Some of the agents: each looks once a second and reports what is due; one whose answer has
    not come waits."""

    def run(self, coordinator: Any, numbers: list[int], count: int, seconds: int) -> list[float]:
        """Seconds that each report waited for its answer, once all was warm."""
        nodes = {number: SimulatedNode(number, count * PER_NODE) for number in numbers}
        waits: list[float] = []
        waiting = set[int]()
        lock = threading.Lock()
        start = time.time()
        for second in range(seconds):
            families = hardware(second)
            for place, (number, node) in enumerate(nodes.items()):
                phase = place / len(nodes)
                time.sleep(max(0.0, start + second + phase - time.time()))
                with lock:
                    if number in waiting or not node.due(second, start + phase):
                        continue
                    waiting.add(number)
                data = node.report(node.snapshot(second, families, start=start + phase))
                sent = time.time()

                def answered(future: Any, number: int = number, sent: float = sent) -> None:
                    if time.time() - start > WARM_SECONDS:
                        waits.append(time.time() - sent)
                    nodes[number].take(unpack(future.result(), Receipt))
                    with lock:
                        waiting.discard(number)

                coordinator.report.remote(data).future().add_done_callback(answered)
        return waits


def measure(count: int, seconds: int, callers: int, *, idle: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        coordinator = ray.remote(RayCoordinator).options(num_cpus=0, enable_task_events=False)
        most = Config().coordinator.reports_per_second
        actor = coordinator.remote(folder, idle, min(count / most, LONGEST_INTERVAL))
        made = [ray.remote(Callers).options(num_cpus=0).remote() for _ in range(callers)]
        ray.get(actor.figures.remote())
        runs = [
            one.run.remote(actor, list(range(number, count, callers)), count, seconds)
            for number, one in enumerate(made)
        ]
        time.sleep(WARM_SECONDS)
        begun, (spent, answered, _) = time.time(), ray.get(actor.figures.remote())
        ray.wait(runs, num_returns=len(runs), timeout=seconds - WARM_SECONDS - 1)
        took = time.time() - begun
        spent_then, answered_then, memory = ray.get(actor.figures.remote())
        waits = sorted(wait for run in ray.get(runs) for wait in run)
        ray.get(actor.close.remote())
        for one in (actor, *made):
            ray.kill(one)
    print(
        f"{count:5} nodes, {'unread' if idle else 'taken'}: {(spent_then - spent) / took:.2f} of a "
        f"core; {(answered_then - answered) / took:.0f} reports/s, wait "
        f"{1000 * statistics.median(waits):.1f} ms, p99 {1000 * waits[len(waits) * 99 // 100]:.0f};"
        f" {memory:.0f} MiB",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[200, 500, 1000])
    parser.add_argument("--seconds", type=int, default=40)
    parser.add_argument("--callers", type=int, default=2)
    asked = parser.parse_args()
    paths = ":".join((str(HERE), str(HERE.parent)))
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": paths}},
    )
    for count in asked.nodes:
        for idle in (True, False):
            measure(count, asked.seconds, asked.callers, idle=idle)


if __name__ == "__main__":
    main()

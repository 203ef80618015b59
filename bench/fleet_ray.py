"""What Ray's calls add to the coordinator's work with many nodes: ``bench/fleet.py`` over real Ray.

    python bench/fleet_ray.py [--nodes 200 500 1000] [--seconds 40] [--callers 2] [--relays]

The coordinator is an asynchronous Ray actor, as the real one is, and the simulated agents call it
from a few processes, each as many agents as its share; a real agent has a process of its own, so
what the connections of 1,000 processes cost comes on top. Beside it stands the same actor whose
method does nothing: what is left of the first figure is ours. Prints, for each number of nodes, the
share of a core of the actor's process, how many reports a second it answered, and how long the
callers waited. With ``--relays`` each is measured once more with as many relays as the real
coordinator would make, real ones, which hand the reports on; what a relay takes is printed too.
"""

from __future__ import annotations

import argparse
import asyncio
import math
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
from ray_sentinel.actors.names import COORDINATOR, NAMESPACE  # noqa: E402
from ray_sentinel.actors.relay.actor import Relay  # noqa: E402
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

    async def report_together(self, reports: list[bytes]) -> list[bytes]:
        return [await self.report(data) for data in reports]

    async def figures(self) -> tuple[float, int, float]:
        """Seconds of CPU, reports answered, MiB."""
        return time.process_time(), self._answered, resident()

    async def close(self) -> None:
        if self._fleet is not None:
            await asyncio.to_thread(self._fleet.close)


class Callers:
    """Some of the agents: each looks once a second and reports what is due; one whose answer has
    not come waits."""

    def run(self, targets: list[Any], numbers: list[int], count: int, seconds: int) -> list[float]:
        """Seconds that each report waited for its answer, once all was warm; agents share the
        ``targets``, which are the coordinator or relays."""
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

                target = targets[number % len(targets)]
                target.report.remote(data).future().add_done_callback(answered)
        return waits


class MeasuredRelay(Relay):
    """A relay that says what it takes."""

    async def figures(self) -> tuple[float, float]:
        """Seconds of CPU, MiB."""
        return time.process_time(), resident()


def measure(count: int, seconds: int, callers: int, *, idle: bool, relays: int = 0) -> None:
    with tempfile.TemporaryDirectory() as folder:
        light = {"num_cpus": 0, "enable_task_events": False, "namespace": NAMESPACE}
        coordinator = ray.remote(RayCoordinator).options(name=COORDINATOR, **light)
        most = Config().coordinator.reports_per_second
        actor = coordinator.remote(folder, idle, min(count / most, LONGEST_INTERVAL))
        made = [ray.remote(Callers).options(num_cpus=0).remote() for _ in range(callers)]
        ray.get(actor.figures.remote())
        handing = [ray.remote(MeasuredRelay).options(**light).remote() for _ in range(relays)]
        ray.get([relay.ping.remote() for relay in handing])
        runs = [
            one.run.remote(handing or [actor], list(range(number, count, callers)), count, seconds)
            for number, one in enumerate(made)
        ]
        time.sleep(WARM_SECONDS)
        begun, (spent, answered, _) = time.time(), ray.get(actor.figures.remote())
        handed = [ray.get(relay.figures.remote())[0] for relay in handing]
        ray.wait(runs, num_returns=len(runs), timeout=seconds - WARM_SECONDS - 1)
        took = time.time() - begun
        spent_then, answered_then, memory = ray.get(actor.figures.remote())
        after = [ray.get(relay.figures.remote()) for relay in handing]
        waits = sorted(wait for run in ray.get(runs) for wait in run)
        ray.get(actor.close.remote())
        for one in (actor, *made, *handing):
            ray.kill(one)
    each = ""
    if handing:
        took_each = [(then - now) / took for (then, _), now in zip(after, handed, strict=True)]
        each = (
            f"; each of {relays} relays {statistics.median(took_each):.3f} of a core, "
            f"{statistics.median(mib for _, mib in after):.0f} MiB"
        )
    print(
        f"{count:5} nodes, {'unread' if idle else 'taken'}: {(spent_then - spent) / took:.2f} of a "
        f"core; {(answered_then - answered) / took:.0f} reports/s, wait "
        f"{1000 * statistics.median(waits):.1f} ms, p99 {1000 * waits[len(waits) * 99 // 100]:.0f};"
        f" {memory:.0f} MiB{each}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[200, 500, 1000])
    parser.add_argument("--seconds", type=int, default=40)
    parser.add_argument("--callers", type=int, default=2)
    parser.add_argument("--relays", action="store_true")
    asked = parser.parse_args()
    paths = ":".join((str(HERE), str(HERE.parent)))
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": paths}},
    )
    limits = Config().coordinator
    for count in asked.nodes:
        for idle in (True, False):
            measure(count, asked.seconds, asked.callers, idle=idle)
            if asked.relays and count > limits.relays_above:
                relays = math.ceil(count / limits.agents_per_relay)
                measure(count, asked.seconds, asked.callers, idle=idle, relays=relays)


if __name__ == "__main__":
    main()

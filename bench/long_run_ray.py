"""What the coordinator's actor takes after an hour with 1,000 nodes: ``long_run.py`` over Ray.

    python bench/long_run_ray.py [--nodes 1000] [--minutes 60] [--seconds 60]

The actor is the real one, with all of its loops, log, history and page; only its clock is stepped,
and the nodes are simulated ones (eight ranks and 131 series each) that Ray does not know. For the
hour, every node reports as often as it samples, or less often as long as none of that will be kept,
and the clock moves on once all have; reports come as relays hand them on, up to 64 in a call, and
segments of the event log are long, as else packing their states would take most of the time. Then
the clock runs, and for ``--seconds`` agents report when they are due, sixteen relays four times a
second each. Prints resident memory (at the end of the hour and of the time after it, once the
allocator gives back, and at most), the bytes of series, the share of a core, what the event log
takes, what ``status``, ``pulse`` and ``lanes`` took, and the garbage collector's full collections:
how many there were while the clock ran, the longest of them, and what one takes now.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import ray
from fleet import FullCollections
from nodes import PER_NODE, SimulatedNode, hardware
from processes import most_resident, resident

from ray_sentinel.actors.coordinator import parts
from ray_sentinel.actors.coordinator.actor import Coordinator
from ray_sentinel.actors.coordinator.event_log import writer
from ray_sentinel.actors.coordinator.event_log.log import (
    EventLog,
    read_header,
    segments,
)
from ray_sentinel.actors.coordinator.fleet import Fleet
from ray_sentinel.actors.coordinator.memory import return_free_memory
from ray_sentinel.actors.hosts import RayNode
from ray_sentinel.actors.messages import Receipt, unpack
from ray_sentinel.actors.names import COORDINATOR, NAMESPACE
from ray_sentinel.clock import SteadyClock
from ray_sentinel.config import Config, CoordinatorConfig

HERE = Path(__file__).resolve().parent
STEP, LONG_STEP = 6, 9
"""Seconds between two samples of a node that reports every two seconds, and the most between two
reports of ranks that count as watched all the time."""
SERIES_MINUTES = 33
"""Of which all samples are told: a little more than are kept."""
LONG_SEGMENT = 192 << 20
TOGETHER = CoordinatorConfig().agents_per_relay
QUARTERS = 4
"""So often does a relay hand on what it has, each second."""


class SteppedClock:
    """Stands where it is moved to, until it runs."""

    def __init__(self, start: float) -> None:
        self._start = start
        self._passed = 0.0
        self._running_since: float | None = None

    def now(self) -> float:
        """Unix seconds."""
        return self._start + self.monotonic()

    def monotonic(self) -> float:
        """Seconds since the start."""
        since = self._running_since
        return self._passed + (time.monotonic() - since if since is not None else 0.0)

    def sleep(self, seconds: float) -> None:
        """Wait, in real seconds."""
        time.sleep(seconds)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._passed += seconds

    @property
    def runs(self) -> bool:
        """Whether it goes on by itself."""
        return self._running_since is not None

    def run(self) -> None:
        """Go on by itself from now on."""
        self._running_since = time.monotonic()


class SimulatedFleet(Fleet):
    """Nodes that are simply there."""

    def __init__(self, count: int, config: bytes, heard: Callable[[str], float | None]) -> None:
        super().__init__(config, heard)
        simulated = (SimulatedNode(number, count * PER_NODE).node for number in range(count))
        self._there = {
            node.id: RayNode(id=node.id, hostname=node.host, address=node.address, alive=True)
            for node in simulated
        }

    def step(self, now: float) -> None:
        """Nothing joins or leaves."""

    def nodes(self) -> dict[str, RayNode]:
        """All of them."""
        return dict(self._there)

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self._there)


class SteppedLog(EventLog):
    """Its segments are long while the clock is stepped."""

    def __init__(self, clock: SteppedClock, folder: Path, **options: Any) -> None:
        super().__init__(folder, **options)
        self._clock = clock

    @property
    def begins(self) -> bool:
        """Whether the next event that comes with a state begins a new segment."""
        return super().begins and not self._goes_on

    @property
    def _over(self) -> bool:
        return super()._over and not self._goes_on

    @property
    def _goes_on(self) -> bool:
        return not self._clock.runs and 0 < self._size < LONG_SEGMENT


class SteppedCoordinator(Coordinator):
    """The coordinator on a clock that is stepped."""

    def __init__(self, config: bytes, count: int, start: float) -> None:
        self._clock = clock = SteppedClock(start)
        self._collections = FullCollections()
        # Made by the log's thread, some time later.
        patch.object(writer, "EventLog", partial(SteppedLog, clock)).start()
        with (
            patch.object(parts, "Fleet", lambda *given: SimulatedFleet(count, *given[:2])),
            patch.object(parts, "SystemClock", lambda: clock),
            patch.object(parts, "resumed_clock", lambda newest, last: SteadyClock(clock)),
        ):
            super().__init__(config, "bench", os.urandom(32))

    async def advance(self, seconds: float) -> None:
        """Let time pass, and the disk have what it would take in this time."""
        while self._parts.engine.writer.waiting_bytes > 1 << 20:
            await asyncio.sleep(0.01)
        self._clock.advance(seconds)

    async def run(self) -> None:
        """Let the clock run."""
        self._collections.took.clear()
        self._clock.run()

    async def figures(self) -> tuple[float, float]:
        """Seconds of CPU and MiB."""
        return time.process_time(), resident()

    async def summary(self) -> str:
        """What is printed of it at the end."""
        collected, engine = str(self._collections), self._parts.engine
        tracked = len(gc.get_objects())
        begun = time.thread_time()
        gc.collect()
        took = time.thread_time() - begun
        before = resident()
        return_free_memory()
        return (
            f"{before:.0f} MiB, {resident():.0f} MiB once the allocator gives back, at most "
            f"{most_resident():.0f} MiB; {engine.series_bytes / 2**20:.0f} MiB of series; "
            f"{len(engine.incidents())} incidents, {engine.writer.missing} events missing in the "
            f"log; {collected}; one now: {1000 * took:.0f} ms, {tracked:,} objects"
        )


class Agents:
    """The simulated nodes, and the relays by which they report."""

    def __init__(self, actor: Any, count: int, start: float) -> None:
        self._actor, self._start = actor, start
        nodes = [SimulatedNode(number, count * PER_NODE) for number in range(count)]
        self._groups = [nodes[first : first + TOGETHER] for first in range(0, count, TOGETHER)]
        self._asked: list[tuple[list[SimulatedNode], Any]] = []
        self._second = 0

    def fill(self, seconds: int) -> None:
        """Report for an hour that passes as fast as it can."""
        asked: dict[int, Any] = {}
        until = self._second + seconds
        while self._second < until:
            step = STEP if until - self._second <= 60 * SERIES_MINUTES else LONG_STEP
            self._second += step
            families = hardware(self._second)
            ray.get(self._actor.advance.remote(step))
            for place, group in enumerate(self._groups):
                if place in asked:
                    self._receive(group, asked.pop(place))
                reports = []
                for node in group:
                    node.pace.set_interval(step)
                    node.due(self._second, self._start)
                    snapshot = node.snapshot(self._second, families, start=self._start)
                    reports.append(node.report(snapshot))
                asked[place] = self._actor.report_together.remote(reports)
        for place, answer in asked.items():
            self._receive(self._groups[place], answer)

    def live(self, seconds: int) -> None:
        """Report as agents do."""
        begun, first = time.time(), self._second + 1
        for self._second in range(first, first + seconds):
            families = hardware(self._second)
            for quarter in range(QUARTERS):
                passed = self._second - first + quarter / QUARTERS
                time.sleep(max(0.0, begun + passed - time.time()))
                self._receive_all()
                for group in self._groups:
                    self._report(group[quarter::QUARTERS], families)
        self._receive_all()

    def _report(self, group: Iterable[SimulatedNode], families: Any) -> None:
        due = [node for node in group if node.due(self._second, self._start)]
        reports = [
            node.report(node.snapshot(self._second, families, start=self._start)) for node in due
        ]
        if reports:
            self._asked.append((due, self._actor.report_together.remote(reports)))

    def _receive_all(self) -> None:
        asked, self._asked = self._asked, []
        for group, answer in asked:
            self._receive(group, answer)

    def _receive(self, group: Iterable[SimulatedNode], answer: Any) -> None:
        for node, receipt in zip(group, ray.get(answer), strict=True):
            node.accept(unpack(receipt, Receipt))


def timed(call: Callable[[], bytes]) -> str:
    """The median seconds of a call that is made four times in the time that pages do, and the
    bytes."""
    took = []
    for _ in range(4):
        begun = time.time()
        size = len(call())
        took.append(time.time() - begun)
        time.sleep(4.0)
    return f"{statistics.median(took):.2f} s, {size / 1e6:.2f} MB"


def measure(count: int, minutes: float, seconds: int, folder: str) -> None:
    """Run ``count`` nodes, and print what that takes."""
    config = Config(log_dir=folder, coordinator=CoordinatorConfig(port=0))
    light = {"num_cpus": 0, "enable_task_events": False, "namespace": NAMESPACE}
    live_at = time.time()
    start = live_at - 60 * minutes
    actor = (
        ray.remote(SteppedCoordinator)
        .options(name=COORDINATOR, **light)
        .remote(msgspec.json.encode(config), count, start)
    )
    agents = ray.remote(Agents).options(**light).remote(actor, count, start)
    begun = time.time()
    ray.get(agents.fill.remote(int(60 * minutes)))
    spent, filled = ray.get(actor.figures.remote())
    print(
        f"{count} nodes, {minutes:.0f} minutes in {time.time() - begun:.0f} s ({spent:.0f} s of "
        f"CPU): {filled:.0f} MiB",
        flush=True,
    )
    ray.get(actor.run.remote())
    running, begun = agents.live.remote(seconds), time.time()
    asked = {
        name: timed(partial(_answer, getattr(actor, name))) for name in ("status", "pulse", "lanes")
    }
    ray.get(running)
    spent, took = ray.get(actor.figures.remote())[0] - spent, time.time() - begun
    print(f"then live: {spent / took:.2f} of a core; {logged(folder, live_at)}; {asked}")
    print(ray.get(actor.summary.remote()), flush=True)
    ray.get(actor.close.remote())
    for one in (actor, agents):
        ray.kill(one)


def logged(folder: str, since: float) -> str:
    """What the event log takes a second, of its segments that began ``since`` and are packed."""
    begun: list[tuple[float, Path]] = []
    for path in reversed(segments(Path(folder, "events", "bench"))):
        if (at := read_header(path).started_at) < since:
            break
        begun.append((at, path))
    if len(begun) < 2:
        return "no segment of the log is full"
    size = sum(path.stat().st_size for _, path in begun[1:])
    rate = size / (begun[0][0] - begun[-1][0])
    kept = Config().storage.max_bytes // 4
    return (
        f"log {rate / 1e6:.2f} MB/s in {len(begun) - 1} segments, so that {kept >> 20} MiB are "
        f"{kept / rate / 60:.0f} minutes"
    )


def _answer(method: Any) -> bytes:
    return bytes(ray.get(method.remote()))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seconds", type=int, default=60)
    asked = parser.parse_args()
    paths = ":".join((str(HERE), str(HERE.parent)))
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": paths}},
    )
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        measure(asked.nodes, asked.minutes, asked.seconds, folder)


if __name__ == "__main__":
    main()

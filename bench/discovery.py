"""The cost of what a large cluster reads again and again: Prometheus' files, ``/sd`` and the page.

    python bench/discovery.py [--nodes 1000]

Eight ranks a node, which have reported to a coordinator three times. Prints the bytes of each
answer and the CPU milliseconds of making it; of the status, the pulse and the lanes also for how
many of these the engine is held. The pulse and the lanes are as full as an hour can make them, and
each node has told an event.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
from fleet import FleetCoordinator
from nodes import PER_NODE, SimulatedNode, hardware

from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.last_hour.lanes import HOUR, Lanes
from ray_sentinel.engine.last_hour.lanes_report import LanesPicture
from ray_sentinel.engine.last_hour.pulse import Pulse
from ray_sentinel.engine.last_hour.pulse_report import PulsePicture
from ray_sentinel.engine.status import StatusPicture
from ray_sentinel.http.server import Request
from ray_sentinel.model.metrics import Event
from ray_sentinel.model.status import Status
from ray_sentinel.store.prometheus.scrape_config import (
    ray_targets_file,
    target_groups,
    targets_file,
)
from ray_sentinel.web.routes import PageSource, routes, static_files

REPORTS = 3
KINDS = "step", "checkpoint"
T = TypeVar("T")


def timed(make: Callable[[], T]) -> tuple[T, float]:
    """The result of ``make``, and the median of its milliseconds of CPU."""
    took = []
    for _ in range(5):
        begun = time.thread_time()
        made = make()
        took.append(1000 * (time.thread_time() - begun))
    return made, statistics.median(took)


def costs(make: Callable[[], bytes]) -> str:
    """Size and CPU time of one answer, as text."""
    made, took = timed(make)
    return f"{len(made) / 1000:.1f} kB, {took:.1f} ms"


def fill_hour(engine: Engine) -> None:
    """Give all jobs an hour of steps and the most stretches: with each look all ranks change."""
    for job in engine.view.jobs.values():
        job.pulse, job.lanes = Pulse(), Lanes()  # what is older than the newest is not taken
        for back in range(int(HOUR), 0, -3):
            at = engine.now - back
            job.pulse.add("", 1.0 + back % 7, at)
            job.lanes.record(job.live, 1.0, KINDS[back // 3 % 2], at)


def event(at: float) -> Event:
    """What the kernel of a node says."""
    return Event(time=at, kind="kernel.link_down", message="mlx5_0: Link DOWN")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1000)
    count = parser.parse_args().nodes
    nodes = [SimulatedNode(number, count * PER_NODE) for number in range(count)]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        engine = Engine()
        coordinator = FleetCoordinator(Path(folder), engine)
        for second in range(REPORTS):
            start, families = time.time() - second, hardware(second)
            for node in nodes:
                snapshot = node.snapshot(second, families, start=start)
                told = (event(snapshot.time),) if second == 0 else ()
                snapshot = msgspec.structs.replace(snapshot, events=told)
                coordinator.answer(node.report(snapshot))
        targets = coordinator.roster.targets()
        hosts = {f"{one.node.address}:8080": one.node.host for one in nodes}

        def status() -> Status:
            return msgspec.msgpack.decode(coordinator.status(), type=Status)

        table = routes(PageSource(status=status, incidents=coordinator.loop.incidents))

        def asked(path: str) -> bytes:
            request = Request(method="GET", path=path, headers={"accept-encoding": "gzip"})
            return table[path](request).body

        def discovered() -> bytes:
            return msgspec.json.encode(target_groups(targets, {"job": "ray_sentinel"}))

        coordinator.ticks.stop(5.0)  # one would look at the lanes, too
        fill_hour(engine)
        now, view, loop = engine.now, engine.view, coordinator.loop
        print(f"{count} nodes, {count * PER_NODE} ranks, {len(targets)} targets")
        print(f"  Prometheus's file of agents: {costs(lambda: targets_file(targets))}")
        print(f"  its file of Ray's own targets: {costs(lambda: ray_targets_file(hosts))}")
        print(f"  /sd: {costs(discovered)}")
        print(f"  status, for a command: {costs(coordinator.status)}")
        held = timed(lambda: StatusPicture(engine.state, now))[1]
        print(f"    of it the engine is held for {held:.1f} ms")
        print(f"  the pulse: {costs(lambda: msgspec.json.encode(loop.pulse()))}")
        held = timed(lambda: PulsePicture(view, now, engine.alerts()))[1]
        print(f"    of it the engine is held for {held:.1f} ms")
        print(f"  the lanes: {costs(lambda: msgspec.json.encode(loop.lanes()))}")
        held = timed(lambda: LanesPicture(view, now))[1]
        print(f"    of it the engine is held for {held:.1f} ms")
        print(f"  the page's data, compressed: {costs(lambda: asked('/api/v1/page'))}")
        static = sum(len(asked(path)) for path in static_files())
        print(f"  its files, once: {static / 1000:.1f} kB")
        coordinator.close()


if __name__ == "__main__":
    main()

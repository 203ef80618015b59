"""What a node's metrics cost on their way to the coordinator, and there.

    python bench/samples.py [--series 300] [--nodes 20] [--minutes 30] [--bounded 0]

Prints, for a node with ``--series`` series and 12 collectors, with eight ranks that train and with
none, and for reports that contain everything and that contain what has changed: the bytes of a
report, one a second; the CPU of the agent for it, and of the coordinator (reading it, the engine,
its line of the event log); and what the coordinator's memory grows by, for each node, in
``--minutes`` of 400 series. With ``--bounded``, instead: what the samples of so many nodes with 131
series take where each has the room that it has among a thousand, and rules have looked at them.
"""

from __future__ import annotations

import argparse
import gc
import time
from itertools import product

from msgspec.structs import replace
from nodes import NAMES, OF_GPU, PER_NODE, START, SimulatedNode, devices, hardware
from processes import resident

from ray_sentinel.actors.coordinator.event_log.log import encoded
from ray_sentinel.actors.coordinator.memory import fix_large_blocks, return_free_memory
from ray_sentinel.actors.coordinator.roster import Roster
from ray_sentinel.actors.messages import HistoryRequest, Receipt
from ray_sentinel.config import Config, CoordinatorConfig
from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import SnapshotReceived
from ray_sentinel.engine.telemetry.series import Telemetry
from ray_sentinel.model.metrics import CollectorStatus

COLLECTORS = 12
STEP = 6
"""Seconds between two samples of each node where there are many."""


def collectors(second: int) -> tuple[CollectorStatus, ...]:
    """The states of a node's collectors, each of which ran last at a moment of its own."""
    return tuple(
        CollectorStatus(
            name=f"collector-{number}",
            state="running",
            success=True,
            seconds=0.003 + 0.001 * ((second + number) // 15 * 7919 % 1_000) / 997,
            last_success=START + (second + number) // 15 * 15 - number,
            interval=15.0,
        )
        for number in range(COLLECTORS)
    )


class Nodes:
    """Agents that report once a second, and the coordinator that takes it."""

    def __init__(self, nodes: int, series: int, *, whole: bool = False) -> None:
        self.series, self.whole = series, whole
        self.engine, self.roster = Engine(), Roster(Config())
        self.nodes = [SimulatedNode(number, nodes * PER_NODE) for number in range(nodes)]

    def reports(self, second: int, *, ranks: bool = True) -> list[bytes]:
        """All agents' reports of one second."""
        found = devices(self.series, second)
        looked = collectors(second)
        return [
            node.report(replace(node.snapshot(second, found, ranks=ranks), collectors=looked))
            for node in self.nodes
        ]

    def accept(self, second: int, reports: list[bytes]) -> int:
        """What a coordinator does with them, and its receipts; bytes for its event log."""
        written = 0
        wanted = HistoryRequest(series=600, seconds=5.0)
        for node, data in zip(self.nodes, reports, strict=True):
            report = self.roster.opened(data)
            assert report is not None
            event = SnapshotReceived(time=START + second, snapshot=report.snapshot)
            self.engine.handle(event)
            written += len(encoded(event))
            self.roster.store(report, START + second, 0)
            held = 0 if self.whole else self.roster.held(report)
            tables = self.engine.view.telemetry.held(node.node.id)
            node.accept(Receipt(history=wanted, tables=tables, held=held))
        return written


def needed() -> float:
    """MiB of this process, without garbage."""
    gc.collect()
    return resident()


class Spent:
    """What the reports of some nodes have taken in a minute, after the first quarter."""

    def __init__(self, known: Nodes, *, ranks: bool) -> None:
        self.known, self.ranks = known, ranks
        self.bytes = self.written = 0
        self.agents = self.coordinator = 0.0

    def step(self, second: int) -> None:
        """One second of reports; the first 15 seconds do not count."""
        begun = time.process_time()
        made = self.known.reports(second, ranks=self.ranks)
        sent = time.process_time()
        line = self.known.accept(second, made)
        taken = time.process_time()
        if second > 15:
            self.agents += sent - begun
            self.coordinator += taken - sent
            self.bytes += sum(map(len, made))
            self.written += line


def reporting(nodes: int, series: int) -> None:
    """In turns, so that other load on the machine affects all alike."""
    runs = {
        f"{PER_NODE if ranks else 'no'} ranks, {'all' if whole else 'changes'} told": Spent(
            Nodes(nodes, series, whole=whole), ranks=ranks
        )
        for ranks in (True, False)
        for whole in (True, False)
    }
    for second in range(1, 76):
        for run in runs.values():
            run.step(second)
    count = 60 * nodes
    for what, run in runs.items():
        print(
            f"{series} series, {what}: {run.bytes / count:,.0f} bytes a report, "
            f"{1e6 * run.agents / count:,.0f} µs of CPU in the agent (the making up included), "
            f"{1e6 * run.coordinator / count:,.0f} in the coordinator, "
            f"{run.written / count:,.0f} bytes of log"
        )


def remembering(nodes: int, minutes: int) -> None:
    """Memory of the samples alone."""
    known = Nodes(nodes, 400)
    known.accept(0, known.reports(0, ranks=False))
    before = needed()
    for second in range(5, 60 * minutes, 5):
        known.accept(second, known.reports(second, ranks=False))
    print(
        f"400 series, {minutes} min: {(needed() - before) / nodes:.2f} MiB a node, "
        f"counted {known.engine.view.telemetry.size / nodes / 2**20:.2f}"
    )


def bounded(nodes: int, minutes: int) -> None:
    """Memory of the samples of many nodes, within the bound of a thousand."""
    fix_large_blocks()
    most = CoordinatorConfig().series_bytes * nodes // 1000
    wanted = HistoryRequest(series=600, seconds=STEP)
    known, senders = Telemetry(), [SimulatedNode(n, nodes * PER_NODE) for n in range(nodes)]
    for node in senders:
        node.snapshot(0, hardware(0), ranks=False)  # what a sender holds is not counted
    before = needed()
    for second in range(STEP, 60 * minutes, STEP):
        families = hardware(second)
        for node in senders:
            snapshot = node.snapshot(second, families, ranks=False)
            known.add(snapshot, START + second, 0.0, most)
            tables = known.held(node.node.id)
            node.accept(Receipt(history=wanted, tables=tables, interval=1.0))
        if second % 300 == 0:
            for one in known.nodes.values():
                for name in NAMES:
                    list(one.get(name, START + second))
                for name, gpu in product(OF_GPU, range(PER_NODE)):
                    one.one(name, START + second, gpu=str(gpu))
    taken = needed() - before
    return_free_memory()
    print(
        f"131 series of {nodes} nodes, {minutes} min: {taken:.1f} MiB, "
        f"{needed() - before:.1f} once the allocator gives back, "
        f"counted {known.size / 2**20:.1f}"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--series", type=int, default=300)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--minutes", type=int, default=30)
    parser.add_argument("--bounded", type=int, default=0)
    asked = parser.parse_args()
    if asked.bounded:
        bounded(asked.bounded, asked.minutes)
        return
    reporting(asked.nodes, asked.series)
    remembering(asked.nodes, asked.minutes)


if __name__ == "__main__":
    main()

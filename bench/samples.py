"""What a node's metrics cost on their way to the coordinator, and there.

    python bench/samples.py [--series 300] [--nodes 20] [--minutes 30]

Prints, for a node with ``--series`` series and eight ranks: the bytes of its reports, a second; the
coordinator's CPU for each of them (reading it, the engine, its line of the event log); and what the
coordinator's memory grows by, for each node, in ``--minutes`` of 400 series.
"""

from __future__ import annotations

import argparse
import gc
import time
from pathlib import Path

from nodes import PER_NODE, START, SimulatedNode, devices

from ray_sentinel.actors.coordinator.event_log.log import encoded
from ray_sentinel.actors.messages import AgentReport, HistoryRequest, Receipt, unpack
from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import SnapshotReceived


class Nodes:
    """Agents that report once a second, and the engine that takes it."""

    def __init__(self, nodes: int, series: int) -> None:
        self.series = series
        self.engine = Engine()
        self.nodes = [SimulatedNode(number, nodes * PER_NODE) for number in range(nodes)]

    def reports(self, second: int, *, ranks: bool = True) -> list[bytes]:
        """All agents' reports of one second."""
        found = devices(self.series, second)
        return [node.report(node.snapshot(second, found, ranks=ranks)) for node in self.nodes]

    def take(self, second: int, reports: list[bytes]) -> int:
        """What a coordinator does with them; bytes for its event log."""
        written = 0
        for data in reports:
            report = unpack(data, AgentReport)
            event = SnapshotReceived(time=START + second, snapshot=report.snapshot)
            self.engine.handle(event)
            written += len(encoded(event))
        return written

    def answer(self) -> None:
        """The receipts."""
        wanted = HistoryRequest(series=600, seconds=5.0)
        for node in self.nodes:
            held = self.engine.view.telemetry.held(node.node.id)
            node.take(Receipt(history=wanted, tables=held))


def resident() -> int:
    """Bytes of this process."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def reporting(nodes: int, series: int) -> None:
    """Bytes and CPU of a minute, after the first quarter."""
    known = Nodes(nodes, series)
    size = written = 0
    spent = 0.0
    for second in range(1, 76):
        made = known.reports(second)
        begun = time.process_time()
        line = known.take(second, made)
        known.answer()
        if second > 15:
            spent += time.process_time() - begun
            size += sum(map(len, made))
            written += line
    count = 60 * nodes
    print(
        f"{series} series, {PER_NODE} ranks: {size / count:,.0f} bytes a report, "
        f"{1e6 * spent / count:,.0f} µs of CPU, {written / count:,.0f} bytes of log"
    )


def remembering(nodes: int, minutes: int) -> None:
    """Memory of the samples alone."""
    known = Nodes(nodes, 400)
    known.take(0, known.reports(0, ranks=False))
    before = resident()
    for second in range(5, 60 * minutes, 5):
        known.take(second, known.reports(second, ranks=False))
        known.answer()
    print(
        f"400 series, {minutes} min: {(resident() - before) / nodes / 2**20:.2f} MiB a node, "
        f"counted {known.engine.view.telemetry.size / nodes / 2**20:.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--series", type=int, default=300)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--minutes", type=int, default=30)
    asked = parser.parse_args()
    reporting(asked.nodes, asked.series)
    remembering(asked.nodes, asked.minutes)


if __name__ == "__main__":
    main()

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

from ray_sentinel.actors.agent.sampling import NodeSampling
from ray_sentinel.actors.coordinator.event_log import encoded
from ray_sentinel.actors.messages import AgentReport, HistoryRequest, Receipt, pack_masked, unpack
from ray_sentinel.actors.metrics import KEY_SERIES
from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import SnapshotReceived
from ray_sentinel.model.identity import Node, ProcessId, Rank, RankId
from ray_sentinel.model.metrics import Family, Metric
from ray_sentinel.model.progress import ProcessState, Progress, RankSnapshot, Snapshot

START = 1_750_000_000.0
PER_NODE = 8
NAMES = [name for name in KEY_SERIES if name.startswith("hw_")]


def families(series: int, second: int) -> tuple[Family, ...]:
    """Key series with a device each, whose values move."""
    each = -(-series // len(NAMES))
    found = []
    for place, name in enumerate(NAMES):
        metric = Metric(name, "gauge", "", ("device",))
        count = max(0, min(each, series - place * each))
        values = (metric(1e6 * place + second * (i + 1), f"mlx5_{i}") for i in range(count))
        found.append(Family(metric, tuple(values)))
    return tuple(found)


def ranks(node: int, second: int) -> tuple[RankSnapshot, ...]:
    """Eight that train."""
    name = f"n{node}"
    return tuple(
        RankSnapshot(
            rank=Rank(
                id=RankId("job", 0, number),
                process=ProcessId(name, 1000 + number),
                node=name,
                gpus=(str(number % PER_NODE),),
            ),
            process=ProcessState(state="S", wchan="futex_wait_queue", cpu_seconds=float(second)),
            progress=Progress(
                step=second,
                step_ended_at=START + second,
                recent_step_seconds=(1.0,) * 16,
                steps_recorded=second,
                phase="train",
                phase_since=START,
                scalars={"loss": 2.0},
            ),
        )
        for number in range(node * PER_NODE, (node + 1) * PER_NODE)
    )


class Nodes:
    """Agents that report once a second, and the engine that takes it."""

    def __init__(self, nodes: int, series: int) -> None:
        self.series = series
        self.engine = Engine()
        self.agents = [NodeSampling(f"life{node}") for node in range(nodes)]

    def reports(self, second: int, *, with_ranks: bool = True) -> list[bytes]:
        """All agents' reports of one second."""
        measured = families(self.series, second)
        return [
            pack_masked(
                AgentReport(
                    snapshot=Snapshot(
                        node=Node(id=f"n{node}", host=f"host{node}", address="10.0.0.1"),
                        time=START + second,
                        sequence=second,
                        ranks=ranks(node, second) if with_ranks else (),
                        samples=agent.due(measured, measured, second),
                    ),
                    incarnation=f"life{node}",
                )
            )
            for node, agent in enumerate(self.agents)
        ]

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
        for node, agent in enumerate(self.agents):
            held = self.engine.view.telemetry.held(f"n{node}")
            agent.take(Receipt(history=wanted, tables=held))


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
    known.take(0, known.reports(0, with_ranks=False))
    before = resident()
    for second in range(5, 60 * minutes, 5):
        known.take(second, known.reports(second, with_ranks=False))
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

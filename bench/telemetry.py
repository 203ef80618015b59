"""What the telemetry rules cost, and for how long the engine is held by one event, at 8, 512 and
8,192 ranks.

    python bench/telemetry.py [--ranks 8 512 8192] [--seconds 240]

Prints, for each size, in milliseconds of CPU: what all events of a second take at the mean, with
the rules (which look every five seconds) and in an engine without them, a tick at the median, and
the longest that one tick and one report took. Python's garbage collector comes on top, as it does
in any event: its longest run is given separately (of both engines together). Windows of rules are
up to two minutes long: the first 150 seconds do not count.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time

from nodes import PER_NODE, START, SimulatedNode, hardware

from ray_sentinel.actors.messages import Receipt
from ray_sentinel.config import Config
from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import AnyEvent, SnapshotReceived, Tick
from ray_sentinel.engine.rule import known_rules

WARM_SECONDS = 150
TELEMETRY = ("gpu.", "host.", "net.", "train.", "serve.")


class CollectorTime:
    """What Python's garbage collector has taken, in seconds of CPU."""

    def __init__(self) -> None:
        self.spent = self.longest = self._begun = 0.0
        gc.callbacks.append(self._step)

    def _step(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._begun = time.process_time()
            return
        took = time.process_time() - self._begun
        self.spent += took
        self.longest = max(self.longest, took)


class MeasuredEngine:
    """An engine, and what it took for each event, in milliseconds of CPU."""

    def __init__(self, config: Config, collector: CollectorTime) -> None:
        self.engine = Engine(config)
        self._collector = collector
        self.reports, self.ticks, self.seconds = list[float](), list[float](), list[float]()

    def handle(self, event: AnyEvent) -> float:
        """Milliseconds of CPU that an event takes, without Python's garbage collector."""
        begun, collected = time.process_time(), self._collector.spent
        self.engine.handle(event)
        collected = self._collector.spent - collected
        return 1000 * (time.process_time() - begun - collected)

    def second(self, events: list[SnapshotReceived], tick: Tick, *, counts: bool) -> None:
        """The reports and the tick of one second."""
        reports = [self.handle(event) for event in events]
        ticked = self.handle(tick)
        if counts:
            self.reports.append(max(reports))
            self.ticks.append(ticked)
            self.seconds.append(sum(reports) + ticked)


def measure(ranks: int, seconds: int) -> None:
    """Print the figures of one size."""
    off = {name: {"enabled": False} for name in known_rules() if name.startswith(TELEMETRY)}
    collector = CollectorTime()
    with_rules = MeasuredEngine(Config(), collector)
    without = MeasuredEngine(Config(rules=off), collector)
    nodes = [SimulatedNode(number, ranks) for number in range(max(1, ranks // PER_NODE))]
    for second in range(1, seconds):
        # Agents sample at moments of their own.
        families = hardware(second)
        sampled = [families if (second + place) % 5 == 0 else () for place in range(len(nodes))]
        events = [
            SnapshotReceived(time=START + second, snapshot=node.snapshot(second, found))
            for node, found in zip(nodes, sampled, strict=True)
        ]
        for measured in (with_rules, without):
            measured.second(events, Tick(time=START + second), counts=second > WARM_SECONDS)
        for node in nodes:
            node.accept(Receipt(tables=with_rules.engine.view.telemetry.held(node.node.id)))
    print(
        f"{ranks:6} ranks: a second {statistics.mean(with_rules.seconds):7.1f} ms, without rules "
        f"{statistics.mean(without.seconds):7.1f} ms; a tick "
        f"{statistics.median(with_rules.ticks):6.1f} ms; at most one tick "
        f"{max(with_rules.ticks):7.1f} ms, one report {max(with_rules.reports):7.1f} ms; "
        f"the collector {1000 * collector.longest:7.1f} ms",
        flush=True,
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 512, 8192])
    parser.add_argument("--seconds", type=int, default=240)
    asked = parser.parse_args()
    for ranks in asked.ranks:
        measure(ranks, asked.seconds)


if __name__ == "__main__":
    main()

"""What the telemetry rules cost: a look of all of them, at 8, 512 and 8,192 ranks.

    python bench/telemetry.py [--ranks 8 512 8192] [--seconds 240]

Prints, for each size, in milliseconds of CPU at the median: the snapshots of one second, a tick
without the telemetry rules, and a tick in which all of them look (one in five), with the worst of
these. Windows of rules are up to two minutes long: the first 150 seconds do not count.
"""

from __future__ import annotations

import argparse
import statistics
import time

from nodes import PER_NODE, START, SimulatedNode, hardware

from ray_sentinel.actors.messages import Receipt
from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import SnapshotReceived, Tick

WARM_SECONDS = 150


def measure(ranks: int, seconds: int) -> None:
    engine = Engine()
    nodes = [SimulatedNode(number, ranks) for number in range(max(1, ranks // PER_NODE))]
    taking, ticking, looking = list[float](), list[float](), list[float]()
    for second in range(1, seconds):
        # Agents sample at moments of their own.
        families = hardware(second)
        sampled = [families if (second + place) % 5 == 0 else () for place in range(len(nodes))]
        snapshots = [
            node.snapshot(second, found) for node, found in zip(nodes, sampled, strict=True)
        ]
        begun = time.process_time()
        for snapshot in snapshots:
            engine.handle(SnapshotReceived(time=START + second, snapshot=snapshot))
        between = time.process_time()
        engine.handle(Tick(time=START + second))
        spent = time.process_time() - between
        for node in nodes:
            node.take(Receipt(tables=engine.view.telemetry.held(node.node.id)))
        if second > WARM_SECONDS:
            looked = engine.state.alerts.looked_at == engine.now
            (looking if looked else ticking).append(1000 * spent)
            taking.append(1000 * (between - begun))
    print(
        f"{ranks:6} ranks: snapshots of a second {statistics.median(taking):7.1f} ms; "
        f"tick {statistics.median(ticking):6.1f} ms; "
        f"with telemetry rules {statistics.median(looking):7.1f} ms, worst {max(looking):7.1f} ms",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 512, 8192])
    parser.add_argument("--seconds", type=int, default=240)
    asked = parser.parse_args()
    for ranks in asked.ranks:
        measure(ranks, asked.seconds)


if __name__ == "__main__":
    main()

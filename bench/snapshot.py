"""What the engine's snapshot costs: its size, and the time to pack and to restore it.

    python bench/snapshot.py [--ranks 1000] [--seconds 600] [--looks 12]

A job of ``--ranks`` ranks, eight to a node, each with a GPU that reports, trains for
``--seconds``; its stacks were taken ``--looks`` times. A segment of the event log begins with it:
the engine's lock is held while what can change is copied, and events come in while the copy is
packed. Also what it costs to report an incident, whose log has begun already: how long the engine's
lock is held, and how many segments of the log begin with it.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path

from nodes import PER_NODE, START, SimulatedNode, hardware

from ray_sentinel.actors.coordinator.engine_loop import EngineLoop
from ray_sentinel.actors.coordinator.event_log.log import segments
from ray_sentinel.clock import SystemClock
from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import (
    AnyEvent,
    CaptureDone,
    DumpAsked,
    NoticeSent,
    SnapshotReceived,
    StacksTaken,
    Tick,
)
from ray_sentinel.engine.state import unpacked
from ray_sentinel.model.stacks import StackFact

REPORT_EVERY = 5
LOOKS = 12
PLACES = tuple(
    f"function_{depth} (site-packages/library/module_{depth}.py:{depth})" for depth in range(30)
)


def stacks(second: int, nodes: list[SimulatedNode]) -> AnyEvent:
    """Stacks of all ranks, which stand at one place."""
    facts = tuple(
        StackFact(
            process=rank.process,
            signature=PLACES,
            activity="collective-wait",
            label="in all_reduce",
            waits_for_others=True,
        )
        for node in nodes
        for rank in node.ranks
    )
    return StacksTaken(time=START + second, incident="", round=0, facts=facts)


def trained(ranks: int, seconds: int, looks: int = LOOKS) -> Engine:
    """An engine after ``seconds`` of training and some looks at all stacks."""
    engine = Engine()
    nodes = [SimulatedNode(number, ranks) for number in range(ranks // PER_NODE)]
    for second in range(1, seconds, REPORT_EVERY):
        families = hardware(second)
        for node in nodes:
            snapshot = node.snapshot(second, families)
            engine.handle(SnapshotReceived(time=START + second, snapshot=snapshot))
        engine.handle(Tick(time=START + second))
    for look in range(looks):
        engine.handle(stacks(seconds + look, nodes))
    return engine


def median(call: Callable[[], object], repeat: int = 5) -> float:
    """Milliseconds of a call."""
    took = []
    for _ in range(repeat):
        gc.collect()
        begun = time.perf_counter()
        call()
        took.append(1000 * (time.perf_counter() - begun))
    return statistics.median(took)


def begun(engine: Engine) -> tuple[float, float, float, float]:
    """Milliseconds for which the event that begins a segment holds the engine, that it takes of a
    CPU, for which others have to wait at most while the state is packed and written, and that this
    takes."""
    with tempfile.TemporaryDirectory() as name:
        loop = EngineLoop(engine, SystemClock(), lambda action: None, Path(name), 1 << 30)
        unknown = NoticeSent(time=0.0, incident="none", state="confirmed")
        waits: list[float] = []
        first, spent = 0, 0.0
        gc.collect()
        cpu = time.thread_time()
        start = now = time.perf_counter()
        while first == 0 or not loop.written(first):
            number = loop.feed(unknown)
            spent = spent or 1000 * (time.thread_time() - cpu)
            first = first or number
            waits.append(1000 * (time.perf_counter() - now))
            time.sleep(0.001)
            # From the moment at which it is due: packing keeps the interpreter busy at times.
            now += 0.001 + waits[-1] / 1000
        took = 1000 * (time.perf_counter() - start)
        loop.close()
        return waits[0], spent, max(waits[1:], default=0.0), took


def publish_cost(engine: Engine) -> tuple[float, int]:
    """Milliseconds for which reporting an incident holds the engine's lock, and the segments of the
    log that it begins."""
    with tempfile.TemporaryDirectory() as name:
        loop = EngineLoop(engine, SystemClock(), lambda action: None, Path(name), 1 << 30)
        last = loop.feed(DumpAsked(time=0.0))
        while not loop.written(last):
            time.sleep(0.1)
        before, incident = len(segments(Path(name))), loop.incidents()[-1].id
        gc.collect()
        begun = time.perf_counter()
        last = loop.feed(CaptureDone(time=0.0, incident=incident, bundle="/incidents/one"))
        took = 1000 * (time.perf_counter() - begun)
        while not loop.written(last + 1):
            time.sleep(0.1)
        loop.close()
        return took, len(segments(Path(name))) - before


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--looks", type=int, default=LOOKS, help="at the stacks of each rank")
    options = parser.parse_args()
    engine = trained(options.ranks, options.seconds, options.looks)
    state = engine.state.packed()
    small = zlib.compress(state, 1)
    print(f"{options.ranks} ranks, {options.seconds} s: {len(state) / 1e6:.1f} MB, "
          f"{len(small) / 1e6:.2f} MB in the event log")  # fmt: skip
    print(f"packed in {median(engine.state.packed):.0f} ms, "
          f"compressed in {median(lambda: zlib.compress(state, 1)):.0f} ms (on the log's thread), "
          f"restored in {median(lambda: Engine(state=unpacked(state)[0])):.0f} ms")  # fmt: skip
    segments_begun = [begun(engine) for _ in range(5)]
    first, cpu, others, took = map(statistics.median, zip(*segments_begun, strict=True))
    print(f"a segment begins: the engine is held for {first:.0f} ms ({cpu:.0f} ms of "
          f"CPU); other events wait for up to {others:.0f} ms in the {took:.0f} ms until it is "
          "written")  # fmt: skip
    held, number = publish_cost(engine)
    print(f"an incident is told: the engine is held for {held:.1f} ms, "
          f"{number} segments of the log begin")  # fmt: skip


if __name__ == "__main__":
    main()

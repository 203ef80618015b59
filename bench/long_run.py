"""What a coordinator takes after an hour, and how long another needs to take over from its log.

    python bench/long_run.py [--nodes 1000] [--minutes 60]

Eight ranks and 131 series a node. The clock is a stepped one: every node reports as often as it
samples, which brings to the series all that an hour does. Then reports come as often as the
coordinator asks for, until the newest segment of its event log is as long as one gets, and another
process rebuilds the engine from it. Prints the memory at the end (resident, at most, and what
the series count for), the state and the tail of the log, the seconds that this took, and how far
back a log of such segments goes. There is no Ray in it: the start of the actor comes on top.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import math
import pstats
import tempfile
import time
from pathlib import Path

from fleet import packed_bytes
from nodes import PER_NODE, START, SimulatedNode, hardware
from processes import apart, most_resident, resident

from ray_sentinel.actors.agent.reporting import SAMPLE_SECONDS
from ray_sentinel.actors.coordinator.engine_loop import EngineLoop
from ray_sentinel.actors.coordinator.event_log.log import (
    begun_segment,
    most_events,
    read_header,
    segments,
    unpacked_state,
)
from ray_sentinel.actors.coordinator.event_log.recovery import restore
from ray_sentinel.actors.coordinator.history import wanted
from ray_sentinel.actors.coordinator.memory import fix_large_blocks, return_free_memory
from ray_sentinel.actors.messages import AgentReport, Receipt, unpack
from ray_sentinel.clock import FakeClock
from ray_sentinel.config import Config, CoordinatorConfig
from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import SnapshotReceived

LOG_BYTES = Config().storage.max_bytes // 4
"""What the log may take."""


class LongRun:
    """An engine with its log, and the nodes that report to it, on a clock that is stepped."""

    def __init__(self, count: int, folder: Path) -> None:
        self.folder = folder
        self.clock = FakeClock(START)
        self.loop = EngineLoop(Engine(), self.clock, lambda action: None, folder, LOG_BYTES)
        self.nodes = [SimulatedNode(number, count * PER_NODE) for number in range(count)]
        self.history = wanted(count)
        self.interval = math.ceil(max(1.0, count / CoordinatorConfig().reports_per_second))
        """Seconds between two reports of an agent."""
        self.sampled = self.interval * math.ceil(SAMPLE_SECONDS / self.interval)
        """Seconds between two reports that bring samples."""

    def pass_time(self, seconds: int) -> None:
        """Step on; each node reports once, as what its agent sends every ``seconds``."""
        self.clock.advance(seconds)
        second = int(self.clock.monotonic())
        families = hardware(second)
        for node in self.nodes:
            node.pace.set_interval(seconds)
            data = node.report(node.snapshot(second, families))
            snapshot = unpack(data, AgentReport).snapshot
            self.loop.feed(SnapshotReceived(time=self.clock.now(), snapshot=snapshot))
            tables = self.loop.tables_of(node.node.id)
            node.accept(Receipt(history=self.history, tables=tables, interval=seconds))
        self.loop.tick(lambda: True)
        # The simulated hour is short: the disk gets the time that it would have.
        while self.loop.writer.waiting_bytes:
            time.sleep(0.01)

    def fill_segment(self) -> None:
        """Go on until the newest segment, of those that begin from now on, is nearly as long as one
        gets."""
        newest = before = segments(self.folder)[-1]
        while newest == before:
            self.pass_time(self.interval)
            newest = segments(self.folder)[-1]
        begun = size = newest.stat().st_size
        most = most_events(len(read_header(newest).state or b""), LOG_BYTES)
        once = 0
        while size - begun + once < most:
            self.pass_time(self.interval)
            size, last = newest.stat().st_size, size
            once = size - last


def took_over(folder: Path, profiled: bool) -> None:
    """Rebuild the engine from the log in ``folder``; prints what that took."""
    fix_large_blocks()
    newest = segments(folder)[-1]
    header = read_header(newest)
    state = len(unpacked_state(header))
    profile = cProfile.Profile()
    if profiled:
        profile.enable()
    begun, cpu = time.perf_counter(), time.process_time()
    restored = restore(folder, Config())
    took, cpu = time.perf_counter() - begun, time.process_time() - cpu
    if profiled:
        profile.disable()
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)
    series = restored.engine.view.telemetry.size
    print(
        f"taken over in {took:.1f} s ({cpu:.1f} s of CPU): {state / 1e6:.0f} MB of state, "
        f"{restored.events} events since, of a segment of {newest.stat().st_size / 1e6:.0f} MB; "
        f"{resident():.0f} MiB, at most {most_resident():.0f} MiB; {series / 2**20:.0f} MiB of "
        f"series, {len(restored.engine.incidents())} incidents",
        flush=True,
    )


def logged(folder: Path) -> str:
    """What a log of segments like the newest takes, once they are compressed."""
    newest = segments(folder)[-1]
    header, events = begun_segment(newest)
    *_, last = events
    size, state = packed_bytes([newest]), len(header.state or b"")
    rate = size / (last.time - header.started_at)
    return (
        f"log {rate / 1e6:.2f} MB/s, in segments of {last.time - header.started_at:.0f} s and "
        f"{size / 1e6:.0f} MB, {state / 1e6:.0f} MB of them state, so that {LOG_BYTES >> 20} MiB "
        f"are {LOG_BYTES / rate / 60:.1f} minutes"
    )


def measure(count: int, minutes: float, folder: Path) -> None:
    """Run ``count`` nodes for ``minutes`` of simulated time, and print what that takes."""
    fix_large_blocks()
    run = LongRun(count, folder)
    begun = time.perf_counter()
    while run.clock.monotonic() < 60 * minutes:
        run.pass_time(run.sampled)
    took = time.perf_counter() - begun
    run.fill_segment()
    incidents = len(run.loop.incidents())
    run.nodes.clear()
    gc.collect()
    before = resident()
    return_free_memory()
    print(
        f"{count} nodes, {minutes:.0f} minutes in {took:.0f} s: {before:.0f} MiB, "
        f"{resident():.0f} MiB where the allocator gives back, at most {most_resident():.0f} MiB; "
        f"{run.loop.series_bytes / 2**20:.0f} MiB of series; {incidents} incidents",
        flush=True,
    )
    run.loop.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--profile", action="store_true", help="of the taking over")
    parser.add_argument("--keep", type=Path, help="a folder for the log, which stays")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = asked.keep or Path(name)
        if not segments(folder):
            apart(measure, asked.nodes, asked.minutes, folder)
        apart(took_over, folder, asked.profile)
        print(logged(folder))


if __name__ == "__main__":
    main()

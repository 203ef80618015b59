"""What a coordinator costs with many nodes: simulated agents report to its engine, log and roster.

    python bench/fleet.py [--nodes 200 500 1000] [--seconds 60] [--whole] [--unpaced]

Eight ranks and 131 series a node, which reports as often as the coordinator asks for. The agents
are simulated in a process of their own; what the reports come by is a pipe, so what Ray's calls
cost comes on top. With ``--whole`` each is measured once more with reports that contain everything,
not only what has changed. Prints, for each number of nodes: the coordinator's share of a core, how
many reports a second it answered, of how many bytes, and how long they waited, what a tick took at
most, the full garbage collections (with ``--unpaced`` those that Python makes by itself), its
memory at the end, what its event log takes a second once compressed, and how long it took to name a
rank that was stopped ten seconds before the end.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import multiprocessing
import queue
import statistics
import struct
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec
from nodes import PER_NODE, SimulatedNode, hardware
from processes import apart, resident

from ray_sentinel.actors.coordinator.engine_loop import EngineLoop
from ray_sentinel.actors.coordinator.event_log.log import segments
from ray_sentinel.actors.coordinator.memory import (
    COLLECT_SECONDS,
    GarbageCollection,
    fix_large_blocks,
)
from ray_sentinel.actors.coordinator.roster import Roster
from ray_sentinel.actors.hosts import RayNode
from ray_sentinel.actors.loops import Loop
from ray_sentinel.actors.messages import HistoryRequest, Receipt, pack, unpack
from ray_sentinel.clock import SystemClock
from ray_sentinel.config import Config
from ray_sentinel.engine.actions import AnyAction, Publish
from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import SnapshotReceived
from ray_sentinel.masking import mask_record

WARM_SECONDS = 15
LAST_SECONDS = 10
"""Seconds before the end at which a rank is stopped."""
STOPPED = 3
SENT = struct.Struct("<d")


def agents(pipe: Connection, count: int, seconds: int) -> None:
    """All nodes report for ``seconds``; a rank is stopped some seconds before the end."""
    nodes = [SimulatedNode(number, count * PER_NODE) for number in range(count)]

    def passing() -> Iterator[int]:
        for second in range(seconds):
            if second == seconds - LAST_SECONDS:
                nodes[0].stopped = frozenset({STOPPED})
            yield second

    report(pipe, nodes, passing())
    pipe.send_bytes(b"")
    time.sleep(1.0)


def report(pipe: Connection, nodes: Sequence[SimulatedNode], seconds: Iterable[int]) -> None:
    """Each node looks once a second, spread over it, and reports what is due; one whose answer has
    not come waits. Ends early where nobody reads any more."""
    asked: queue.SimpleQueue[int] = queue.SimpleQueue()
    waiting = set[int]()

    def answered() -> None:
        while True:
            try:
                receipt = unpack(pipe.recv_bytes(), Receipt)
            except (EOFError, OSError):
                return
            number = asked.get()
            nodes[number].accept(receipt)
            waiting.discard(number)

    threading.Thread(target=answered, daemon=True).start()
    start = time.time()
    for second in seconds:
        families = hardware(second)
        for number, node in enumerate(nodes):
            phase = number / len(nodes)
            time.sleep(max(0.0, start + second + phase - time.time()))
            if number in waiting or not node.due(second, start + phase):
                continue
            data = node.report(node.snapshot(second, families, start=start + phase))
            waiting.add(number)
            asked.put(number)
            try:
                pipe.send_bytes(SENT.pack(time.time()) + data)
            except OSError:
                return


class FullCollections:
    """What the full collections of Python's garbage collector take, in seconds of CPU."""

    def __init__(self) -> None:
        self.took: list[float] = []
        self._begun = 0.0
        gc.callbacks.append(self._step)

    def __str__(self) -> str:
        longest = f", at most {1000 * max(self.took):.0f} ms" if self.took else ""
        return f"{len(self.took)} full collections{longest}"

    def _step(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] < 2:
            return
        if phase == "start":
            self._begun = time.thread_time()
        else:
            self.took.append(time.thread_time() - self._begun)


class FleetCoordinator:
    """What the actor does with a report, its ticks, and its garbage collections."""

    def __init__(
        self,
        folder: Path,
        engine: Engine | None = None,
        *,
        whole: bool = False,
        paced: bool = True,
    ) -> None:
        """``engine``: of an earlier one, to go on with; ``whole``: reports must come whole;
        ``paced``: full garbage collections are not left to Python."""
        fix_large_blocks()
        self.whole = whole
        self.collections = FullCollections()
        self.named_at: float | None = None
        self.cycles: list[float] = []
        self.roster = Roster(Config())
        self.loop = EngineLoop(engine or Engine(), SystemClock(), self.act, folder, 1 << 30)
        self.ticks = Loop(1.0, self.tick, name="ticks")
        self.garbage = (
            Loop(COLLECT_SECONDS, GarbageCollection().step, name="garbage") if paced else None
        )

    def act(self, action: AnyAction) -> None:
        """Note when the stopped rank is first named."""
        if isinstance(action, Publish) and any(s.rank == STOPPED for s in action.incident.suspects):
            self.named_at = self.named_at or time.time()

    def tick(self) -> None:
        """One tick of the engine; notes how long it took."""
        self.loop.tick(lambda: True)
        self.cycles.append(self.loop.cycle_seconds or 0.0)

    def answer(self, data: bytes) -> bytes:
        """Take one report; the packed receipt."""
        report = self.roster.opened(data)
        if report is None:
            return pack(Receipt())
        now = time.time()
        number = self.loop.feed(SnapshotReceived(time=now, snapshot=report.snapshot))
        self.roster.store(report, now, number)
        version, targets = self.roster.targets_beyond(report.targets_version)
        return pack(
            Receipt(
                exits=self.roster.acknowledged(report, self.loop.written),
                targets=targets,
                targets_version=version,
                raylets=self.roster.raylets_beside(report),
                history=HistoryRequest(series=600, seconds=5.0),
                interval=self.roster.interval,
                tables=self.loop.tables_of(report.snapshot.node.id),
                held=0 if self.whole else self.roster.held(report),
            )
        )

    def status(self) -> bytes:
        """The status as the actor gives it, without that of parts that are not here."""
        status = self.loop.status()
        known = self.roster.agents(time.time())
        living = {
            one.node_id: RayNode(id=one.node_id, hostname=one.host, address=one.address, alive=True)
            for one in known
        }
        nodes = self.roster.nodes(living, lambda node: node.hostname, time.time())
        return pack(mask_record(msgspec.structs.replace(status, nodes=nodes)))

    def close(self) -> None:
        """Stop the ticks and the collections, and close the loop."""
        self.ticks.stop()
        if self.garbage is not None:
            self.garbage.stop()
        self.loop.close()


def packed_bytes(paths: Iterable[Path]) -> int:
    """What segments of an event log take once all of them are compressed."""
    return sum(
        path.stat().st_size
        if path.suffix == ".gz"
        else len(gzip.compress(path.read_bytes(), compresslevel=1))
        for path in paths
    )


def measure(
    count: int, seconds: int, folder: Path, *, whole: bool = False, paced: bool = True
) -> None:
    """Run ``count`` nodes for ``seconds``, and print what that takes."""
    coordinator = FleetCoordinator(folder, whole=whole, paced=paced)
    waits: list[float] = []
    answered = size = 0
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=agents, args=(theirs, count, seconds), daemon=True)
    process.start()
    theirs.close()
    begun = spent = 0.0
    while data := ours.recv_bytes():
        ours.send_bytes(coordinator.answer(data[SENT.size :]))
        now = time.time()
        begun = begun or now
        if now - begun > WARM_SECONDS:
            if not spent:
                spent = time.process_time()
                coordinator.collections.took.clear()
            answered += 1
            size += len(data) - SENT.size
            waits.append(now - SENT.unpack_from(data)[0])
    took = time.time() - begun - WARM_SECONDS
    spent = time.process_time() - spent
    stopped_at = begun + seconds - LAST_SECONDS
    named = coordinator.named_at
    memory = resident()
    coordinator.close()
    process.join()
    written = packed_bytes(segments(folder))
    waits.sort()
    print(
        f"{count:5} nodes{', whole' if whole else ''}: {spent / took:.3f} of a core; "
        f"{answered / took:.0f} reports/s of {size / answered:,.0f} bytes, wait "
        f"{1000 * statistics.median(waits):.1f} ms, p99 {1000 * waits[len(waits) * 99 // 100]:.0f};"
        f" tick ≤ {1000 * max(coordinator.cycles[WARM_SECONDS:]):.0f} ms; "
        f"{coordinator.collections}; {memory:.0f} MiB; log "
        f"{written / seconds / 1e6:.1f} MB/s; stopped rank named after "
        f"{f'{named - stopped_at:.1f} s' if named else 'more than that'}",
        flush=True,
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[200, 500, 1000])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--unpaced", action="store_true")
    asked = parser.parse_args()
    runs = [(count, whole) for count in asked.nodes for whole in (False, True)[: asked.whole + 1]]
    for count, whole in runs:
        with tempfile.TemporaryDirectory() as folder:
            paced = not asked.unpaced
            apart(measure, count, asked.seconds, Path(folder), whole=whole, paced=paced)


if __name__ == "__main__":
    main()

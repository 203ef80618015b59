"""How long it takes to name the rank that holds up a job of thousands, from its last step on.

    python bench/hang_verdict.py [--nodes 64 256 1024] [--entries 2000] [--alike]

Eight ranks a node take a step a second for a while; then rank 13 stands in its own code, and all
others wait for it in a collective that its recorder lacks. With ``--alike`` its stacks show it in
that collective too, as those of a rank do that called another one. The coordinator's loop, engine,
executor and bundle are the real ones. Agents are simulated in a process of their own: they report
as in ``bench/fleet.py``, and give stacks, recorders and captures when they are asked, after the
seconds that tools need for them (``TAKES``), recorders later by the turns that the coordinator
gives them. All of it comes by pipes, so what Ray's calls cost comes on top.

Every rank has a recorder of its own groups, reduced as nodes reduce them. Prints, for
each number of nodes: seconds from the last step until the hang was suspected, from then until
somebody was named, until recorders came and until the bundle was there; the most that was sent to
the coordinator in a second, how long reports waited for it and what a tick took at most; its CPU
seconds until the name and until the bundle, and its peak memory; the bundle's size, also in blocks
of 4 KiB.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import pickle
import queue
import struct
import tempfile
import threading
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
from fleet import SENT, FleetCoordinator, report
from flight_recorder import CULPRIT, large_job_trees
from hang import every_recorder, on_disk, python_only
from nodes import PER_NODE, SimulatedNode
from processes import apart, most_resident
from stacks import dump

from ray_sentinel.actors.agent_calls import Late
from ray_sentinel.actors.coordinator.executor import Executor
from ray_sentinel.actors.coordinator.gathering.agents import Agents
from ray_sentinel.actors.messages import (
    CaptureRequest,
    Dump,
    DumpRequest,
    Dumps,
    NodeCapture,
    Outputs,
    Sampled,
    pack,
    unpack,
)
from ray_sentinel.actors.storage import DeploymentStorage
from ray_sentinel.capture.ras import RasPolls
from ray_sentinel.config import Config
from ray_sentinel.engine.actions import AnyAction, ProbeNode, Publish
from ray_sentinel.evidence.stacks import classify, parse
from ray_sentinel.evidence.stacks.same import fold
from ray_sentinel.model.identity import ProcessId, Rank
from ray_sentinel.model.incident import Incident
from ray_sentinel.model.stacks import StackFact

T = TypeVar("T")

TRAINS_SECONDS = 25
FOLLOWED_SECONDS = 90
"""Seconds that are followed after the last step; fewer if the bundle is there before."""
TAKES = {"sample": 0.5, "nccl_ras": 0.1, "flight_recorder": 2.0, "rank_output": 1.0, "capture": 3.0}
"""Seconds of an agent's tools for its eight ranks; those of a rank's recorder are its companion's
half a second, and 50 ms to reduce it."""
THREADS = 20
ANSWER = struct.Struct("<IId")
"""Number of the question, number of the node, Unix time at which its agent sent the answer."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One question to several agents at once."""

    number: int
    method: str
    requests: dict[int, bytes]
    """The requests, by number of the node."""


class SimulatedEvidence:
    """What the agents answer when they are asked."""

    def __init__(self, world: int, entries: int, alike: bool) -> None:
        """``alike``: whether all stacks are alike."""
        self._world, self._entries = world, entries
        self._whole = every_recorder(world, entries)
        self._judged = every_recorder(world, entries, "judged")
        waits, apart = (python_only(dump(0, THREADS, "plain", odd)) for odd in (False, not alike))
        self._texts = {False: waits, True: apart}
        self._facts = {odd: _fact(text) for odd, text in self._texts.items()}

    def answer(self, method: str, data: bytes) -> tuple[float, bytes]:
        """The fewest seconds from the question until the answer is sent, and the answer."""
        seconds = TAKES[method]
        if method == "flight_recorder":
            request = unpack(data, DumpRequest)
            dumps = self._raw(request) if request.raw else self._reduced(request)
            seconds += request.turn(sum(len(one.data) for one in dumps))
            return seconds, pack(Dumps(dumps=dumps))
        if method == "capture":
            return seconds, pack(self._capture(unpack(data, CaptureRequest)))
        if method == "sample":
            ranks = unpack(data, tuple[Rank, ...])
            return seconds, pack(Sampled(facts=tuple(map(self._seen, ranks))))
        return seconds, pack(RasPolls() if method == "nccl_ras" else Outputs())

    def _seen(self, rank: Rank) -> StackFact:
        return msgspec.structs.replace(
            self._facts[rank.id.rank == CULPRIT],
            rank=rank.id,
            process=rank.process,
            at=time.time(),
        )

    def _reduced(self, request: DumpRequest) -> tuple[Dump, ...]:
        known = dict(zip(request.ranks, request.known, strict=False))
        found = []
        for rank in request.ranks:
            number = rank.id.rank
            form, dumps = (b"j", self._judged) if request.judged else (b"w", self._whole)
            digest = form + b"%15d" % number
            data = b"" if known.get(rank) == digest else dumps[number]
            found.append(Dump(rank=number, data=data, digest=digest))
        return tuple(found)

    def _raw(self, request: DumpRequest) -> tuple[Dump, ...]:
        ranks = [rank.id.rank for rank in request.ranks]
        return tuple(
            Dump(rank=rank, data=pickle.dumps(tree, protocol=2), pickled=True)
            for rank, tree in large_job_trees(self._world, self._entries, ranks)
        )

    def _capture(self, request: CaptureRequest) -> NodeCapture:
        ranks = (*request.suspects, *request.waiters, *request.others)
        files = {
            f"pyspy_{rank.process.host}_{rank.process.pid}.txt": self._texts[
                rank.id.rank == CULPRIT
            ].replace(b"Process 1000:", b"Process %d:" % rank.process.pid)
            for rank in ranks
        }
        return NodeCapture(files=fold(files), facts=tuple(map(self._seen, ranks)))


def _fact(text: bytes) -> StackFact:
    return classify(parse(text.decode(), ProcessId("host0", 1000, 1), 0.0)[0])


def evidence(pipe: Connection, simulated: SimulatedEvidence) -> None:
    """Answer questions, each node's part when it is due."""
    sending = threading.Lock()

    def answered(question: Question) -> None:
        begun = time.time()
        parts: dict[float, dict[int, bytes]] = {}
        for node, request in question.requests.items():
            seconds, data = simulated.answer(question.method, request)
            parts.setdefault(seconds, {})[node] = data
        for seconds, answers in sorted(parts.items()):
            time.sleep(max(0.0, begun + seconds - time.time()))
            for node, data in answers.items():
                with sending:
                    pipe.send_bytes(ANSWER.pack(question.number, node, begun + seconds) + data)

    while True:
        try:
            question = unpack(pipe.recv_bytes(), Question)
        except (EOFError, OSError):
            return
        threading.Thread(target=answered, args=(question,), daemon=True).start()


def agents(reports: Connection, asked: Connection, count: int, entries: int, alike: bool) -> None:
    """Each node looks once a second, spread over it, and reports what is due."""
    simulated = SimulatedEvidence(count * PER_NODE, entries, alike)
    threading.Thread(target=evidence, args=(asked, simulated), daemon=True).start()
    nodes = [SimulatedNode(number, count * PER_NODE) for number in range(count)]
    for node in nodes:
        node.hung_from = TRAINS_SECONDS
    reports.send_bytes(b"ready")
    report(reports, nodes, itertools.count())


class AgentsByPipe:
    """The agents as the executor asks them: the other process."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._boxes: dict[int, queue.SimpleQueue[tuple[int, bytes]]] = {}
        self.came: list[tuple[float, int]] = []
        """When answers were sent, and their bytes: when the pipe is read is our own affair."""
        self._recorders: int | None = None
        """Number of the first question for them."""
        self.recorders_came: list[float] = []
        threading.Thread(target=self._receive, daemon=True).start()

    def ask(
        self,
        method: str,
        requests: Mapping[str, Any],
        kind: type[T],
        seconds: float,
        late: Late | None = None,
    ) -> tuple[dict[str, T], list[str]]:
        box: queue.SimpleQueue[tuple[int, bytes]] = queue.SimpleQueue()
        wanted = {int(node[1:]): pack(request) for node, request in requests.items()}
        with self._lock:
            number = next(self._numbers)
            self._boxes[number] = box
            if method == "flight_recorder" and self._recorders is None:
                self._recorders = number
            self._pipe.send_bytes(pack(Question(number=number, method=method, requests=wanted)))
        end, answers = time.monotonic() + seconds, dict[str, T]()
        while len(answers) < len(wanted):
            try:
                node, data = box.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                break
            answers[f"n{node}"] = unpack(data, kind)
        missing = requests.keys() - answers.keys()
        return answers, [f"node {node}: no answer to {method}" for node in missing]

    def _receive(self) -> None:
        while True:
            try:
                data = self._pipe.recv_bytes()
            except (EOFError, OSError):
                return
            number, node, sent = ANSWER.unpack_from(data)
            self.came.append((sent, len(data)))
            if number == self._recorders:
                self.recorders_came.append(time.time())
            self._boxes[number].put((node, data[ANSWER.size :]))


class HangCoordinator(FleetCoordinator):
    """A coordinator with an executor, which asks the agents by a pipe."""

    def __init__(self, folder: Path, pipe: Connection) -> None:
        config = Config(log_dir=str(folder))
        self.agents = AgentsByPipe(pipe)
        self.executor = Executor(
            config,
            cast(Any, None),
            DeploymentStorage(config),
            agents=cast(Agents, self.agents),
        )
        self.told: dict[str, tuple[float, float, Incident]] = {}
        """By state: when it was reported, CPU seconds until then, and what."""
        super().__init__(folder / "events")
        self.executor.feed = self.loop.feed

    def act(self, action: AnyAction) -> None:
        """Note when each state of an incident is first reported."""
        if isinstance(action, Publish):
            incident = action.incident
            spent = time.process_time()
            self.told.setdefault(incident.state, (time.time(), spent, incident))
        if not isinstance(action, ProbeNode):  # there is no Ray to ask
            self.executor(action)


def most_in_a_second(came: list[tuple[float, int]]) -> int:
    """Most bytes in one second; ``came`` is sorted by time."""
    most = held = first = 0
    for at, size in came:
        held += size
        while came[first][0] <= at - 1.0:
            held -= came[first][1]
            first += 1
        most = max(most, held)
    return most


def measure(count: int, entries: int, alike: bool) -> None:
    """Run one hang on ``count`` nodes."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    asking, asked = context.Pipe()
    other = context.Process(target=agents, args=(theirs, asked, count, entries, alike), daemon=True)
    other.start()
    theirs.close()
    asked.close()
    ours.recv_bytes()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        coordinator = HangCoordinator(Path(folder), asking)
        begun = time.time()
        waits, came = list[tuple[float, float]](), list[tuple[float, int]]()
        while "explained" not in coordinator.told or coordinator.executor.writer.waiting:
            data = ours.recv_bytes()
            ours.send_bytes(coordinator.answer(data[SENT.size :]))
            now, sent = time.time(), SENT.unpack_from(data)[0]
            waits.append((now, now - sent))
            came.append((sent, len(data)))
            if now - begun > TRAINS_SECONDS + FOLLOWED_SECONDS:
                break
        memory = most_resident()
        coordinator.close()
        other.kill()
        print(figures(count, coordinator, waits, came, memory), flush=True)
        coordinator.executor.diagnose.close()
        coordinator.executor.close()


def figures(
    count: int,
    coordinator: HangCoordinator,
    waits: list[tuple[float, float]],
    came: list[tuple[float, int]],
    memory: float,
) -> str:
    """The figures."""
    world = f"{count * PER_NODE} ranks"
    if "confirmed" not in coordinator.told:
        return f"{world}: nobody was named; {coordinator.loop.incidents()}"
    _, spent, incident = coordinator.told["confirmed"]
    named = incident.verdict.culprits if incident.verdict is not None else ()
    suspected = incident.suspected_at
    answers = sorted((*came, *coordinator.agents.came))
    lines = [
        f"{world}: suspected {suspected - (incident.last_progress or 0.0):.1f} s after the last "
        f"step, named {(incident.confirmed_at or 0.0) - suspected:.1f} s later: "
        f"{[one.rank for one in named]}, {incident.kind}; CPU until then {spent:.1f} s"
    ]
    lines += [
        f"  {step.at - suspected:+6.1f} s {step.what}: {step.text[:100]}"
        for step in coordinator.loop.incidents()[-1].milestones
    ]
    if recorders := coordinator.agents.recorders_came:
        first, last = recorders[0] - suspected, recorders[-1] - suspected
        lines.append(f"  the first round of recorders came from {first:.1f} to {last:.1f} s")
    if "explained" in coordinator.told:
        at, spent, incident = coordinator.told["explained"]
        bundle = coordinator.executor.bundles.known(incident.id)
        files = bundle.rglob("*") if bundle is not None else ()
        sizes = [path.stat().st_size for path in files if path.is_file()]
        lines.append(
            f"  bundle {at - suspected:.1f} s after the suspicion, CPU until then {spent:.1f} s; "
            f"{sum(sizes) / 1e6:.0f} MB, {on_disk(sizes) / 1e6:.0f} MB in blocks"
        )
    hung = sorted(wait for at, wait in waits if at > suspected)
    ticks = coordinator.cycles[-int(time.time() - suspected) :]
    lines.append(
        f"  at most {most_in_a_second(answers) / 1e6:.0f} MB are sent in a second; a report waits "
        f"{1000 * hung[len(hung) // 2]:.0f} ms, p99 {1000 * hung[len(hung) * 99 // 100]:.0f}, "
        f"most {1000 * hung[-1]:.0f}; tick ≤ {1000 * max(ticks):.0f} ms; {memory:.0f} MiB at most"
    )
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--entries", type=int, default=2000)
    parser.add_argument("--alike", action="store_true", help="stacks: only recorders tell")
    asked = parser.parse_args()
    for count in asked.nodes:
        apart(measure, count, asked.entries, asked.alike)


if __name__ == "__main__":
    main()

"""A job of many ranks, simulated second by second, around a real engine.

The engine sees snapshots each second, or as seldom as an agent may report, and ticks twice a
second, as in a cluster; its requests for stacks are answered after a short while with what the
scenario says. Nothing sleeps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import pytest

from ray_sentinel.actors.agent.reporting import ReportPace
from ray_sentinel.config import Config
from ray_sentinel.engine.actions import AnyAction, AskRecorder, Capture, ProbeNode, TakeStacks
from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import (
    AnyEvent,
    CaptureDone,
    NodeProbed,
    RecorderExplained,
    SnapshotReceived,
    StacksTaken,
    Tick,
)
from ray_sentinel.model.identity import Node, ProcessId, Rank, RankId
from ray_sentinel.model.incident import Incident, RankLog
from ray_sentinel.model.metrics import Event
from ray_sentinel.model.progress import (
    Exit,
    LastWords,
    ProcessState,
    Progress,
    RankSnapshot,
    RayProcess,
    Snapshot,
)
from ray_sentinel.model.recorder import RecorderFacts
from ray_sentinel.model.stacks import Activity, StackFact
from tests.support.samples import sampled

START = 1_700_000_000.0
ROUND_SECONDS = 3.0
"""After which a round of stacks is told with what has come."""
ATTACHED = pytest.mark.parametrize("attached", [True, False], ids=["attached", "not-attached"])
"""With the ranks' own records, and without any."""


@dataclass
class SimRank:
    """One rank's true state."""

    number: int
    node: str
    pid: int
    attached: bool
    started: float
    step: int = 0
    step_ended_at: float | None = None
    durations: list[float] = field(default_factory=list)
    phase: str = "train"
    phase_since: float = START
    stuck: bool = False
    spinning: bool = False
    state: str = "S"
    interpreter: str = "runs"
    wchan: str = ""
    switches: int = 0
    cpu: float = 0.0
    io: int = 0
    exited: bool = False
    where: tuple[str, ...] = ("main (train.py:1)", "work (train.py:10)")
    activity: Activity = "compute"
    waits: bool | None = False
    holds_gil: bool | None = None
    active: bool | None = None
    words: str = ""
    """An exception that is ending it, though its process is still there."""
    words_at: float = START
    job: str = "job"
    attempt: int = 0
    role: str = ""
    label: str = ""
    operation: str = ""
    frozen: bool = False
    beside: bool = False
    """No rank: a program that has one's variables, and for which nobody waits."""


class Sim:
    """``world`` ranks over ``nodes`` nodes, in steps of ``step_seconds``."""

    def __init__(
        self,
        world: int = 6,
        nodes: int = 3,
        step_seconds: float = 0.5,
        attached: bool = True,
        config: Config | None = None,
        clock_skew: float = 0.0,
        interval: float = 1.0,
    ) -> None:
        """``interval``: seconds between two reports of a node on which nothing happens."""
        self.engine = Engine(config)
        self.now = START
        self.step_seconds = step_seconds
        self.nodes = [
            Node(id=f"n{i}", host=f"host{i}", address=f"10.0.0.{i}") for i in range(nodes)
        ]
        self.ranks = [
            SimRank(i, f"n{i * nodes // world}", 1000 + i, attached, START) for i in range(world)
        ]
        self.skews = dict.fromkeys((node.id for node in self.nodes), clock_skew)
        """So far is each agent's clock behind."""
        self.paces = {
            node.id: ReportPace(1.0, phase=number / nodes) for number, node in enumerate(self.nodes)
        }
        for pace in self.paces.values():
            pace.set_interval(interval)
        self.shifts: dict[str, float] = {}
        """So far is each node's wall clock ahead of its agent's."""
        self.dead_nodes: set[str] = set()
        self.exits: dict[str, list[Exit]] = {node.id: [] for node in self.nodes}
        self.order = 0
        self.sequences: dict[str, int] = {}
        self.pending: list[tuple[float, AnyEvent]] = []
        self.log: list[AnyEvent] = []
        self.actions: list[AnyAction] = []
        self.recorder: RecorderFacts | None = None
        self.recorder_seconds = 0.2
        """Until it is explained."""
        self.stacks_seconds = 0.2
        """Until stacks come; after 3 s their round is told without them, as in a cluster."""
        self.stack_answer: Callable[[SimRank], StackFact] = self.fact
        self.capture_answer: Callable[[SimRank], StackFact] | None = None
        """What the deeper tools say, where they say anything."""
        self.logs: tuple[RankLog, ...] = ()
        """What a capture brings of the ranks' output."""
        self.gauges: dict[str, float] = {}
        """The key series of the first node."""
        self.ray_processes: tuple[RayProcess, ...] = ()
        """Workers of Ray on the first node; their times are on the coordinator's clock."""
        self.held = False
        """All wait for something outside: no step can end."""
        self._done_at = START

    def begin_step(self) -> None:
        """The step that stood still begins anew, now."""
        self._done_at = self.now

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds - 1e-9
        while self.now < end:
            self.now = round(self.now + 0.5, 3)
            self._deliver()
            self._live()
            if (self.now * 2) % 2 == 0:
                self._snapshots()
            self.feed(Tick(time=self.now))

    def feed(self, event: AnyEvent) -> None:
        """One event to the engine; its requests are answered 0.2 s later."""
        self.log.append(event)
        actions = self.engine.handle(event)
        for told in self.engine.events_of(actions):
            self.log.append(told)
            assert self.engine.handle(told) == []
        failed = self.engine.failures.told.items()
        assert not [one for one in failed if one[0].startswith("handling ")]
        for action in actions:
            self.actions.append(action)
            self.answer(action)

    def restart_agent(self, node_id: str, skew: float) -> None:
        """Another agent, whose clock is so far behind."""
        self.sequences[node_id] = 0
        self.skews[node_id] = skew

    def rank(self, number: int) -> SimRank:
        return self.ranks[number]

    def stick(self, number: int, **changes: object) -> None:
        """A rank stops where it is; its peers will wait for it in a collective."""
        rank = self.rank(number)
        rank.stuck = True
        rank.where = ("main (train.py:1)", "hold (somewhere.py:7)")
        rank.activity, rank.waits = "sleep", False
        for name, value in changes.items():
            setattr(rank, name, value)

    def end(
        self,
        number: int,
        *,
        code: int | None = None,
        signal: int | None = None,
        words: str = "",
        output: str = "",
        said_at: float | None = None,
    ) -> None:
        """A rank's process ends now. It left last words where it had a status, or where ``said_at``
        tells when it said them."""
        rank = self.rank(number)
        rank.exited = True
        self.order += 1
        last = None
        if (code is not None or said_at is not None) and rank.attached:
            kind = "exception" if words else "exit"
            spoken = self.now if said_at is None else said_at
            last = LastWords(time=spoken - self.skews[rank.node], kind=kind, text=words)  # type: ignore[arg-type]
        self.exits[rank.node].append(
            Exit(
                rank=self._identity(rank),
                at=self.now - self.skews[rank.node],
                order=self.order,
                code=code,
                signal=signal,
                last_words=last,
                was_attached=rank.attached,
                last_output=output,
            )
        )
        if rank.node not in self.dead_nodes:
            self.report(rank.node)

    def incidents(self) -> tuple[Incident, ...]:
        return self.engine.incidents()

    def named(self) -> list[int | None]:
        """The culprits of the only incident; fails where there is not exactly one."""
        (incident,) = self.incidents()
        assert incident.verdict is not None
        return sorted(culprit.rank for culprit in incident.verdict.culprits)  # type: ignore[type-var]

    def fact(self, rank: SimRank) -> StackFact:
        """The truthful answer to a look at a rank."""
        return StackFact(
            process=self._identity(rank).process,
            signature=rank.where,
            activity=rank.activity,
            label=rank.label or rank.activity,
            operation=rank.operation,
            waits_for_others=rank.waits,
            holds_gil=rank.holds_gil,
            active=rank.active,
            state=rank.state if rank.state in ("T", "D") else "",
        )

    def _identity(self, rank: SimRank) -> Rank:
        return Rank(
            id=RankId(rank.job, rank.attempt, rank.number),
            process=ProcessId(rank.node.replace("n", "host"), rank.pid, 1),
            node=rank.node,
            world_size=len(self.ranks),
            role=rank.role,
            source="record" if rank.attached else "environ",
        )

    def _live(self) -> None:
        """Ranks work; a step ends only when all have arrived at its end."""
        running = [rank for rank in self.ranks if not rank.exited]
        free = all(rank.beside or not rank.stuck for rank in self.ranks) and not self.held
        free = free and not any(rank.exited for rank in self.ranks)
        while free and self.now - self._done_at >= self.step_seconds:
            self._done_at += self.step_seconds
            for rank in running:
                rank.step += 1
                rank.step_ended_at = self._done_at
                rank.durations.append(self.step_seconds)
        for rank in running:
            if rank.stuck:
                rank.cpu += 0.5 if rank.spinning else 0.0
            elif free:
                rank.switches += 200
                rank.cpu += 0.2
                rank.where = ("main (train.py:1)", f"work (train.py:{10 + rank.switches % 7})")
                rank.activity, rank.waits = "compute", None
            elif not self.held:
                rank.where = ("main (train.py:1)", "all_reduce (distributed_c10d.py:99)")
                rank.activity, rank.waits = "collective-wait", True

    def _snapshots(self) -> None:
        for node in self.nodes:
            ranks = [self.see(rank) for rank in self._living(node.id)]
            of_ray = self.ray_processes if node is self.nodes[0] else ()
            pace = self.paces[node.id]
            if node.id not in self.dead_nodes and pace.due(ranks, of_ray, self.now, owes=False):
                self.report(node.id)

    def _living(self, node_id: str) -> list[SimRank]:
        return [rank for rank in self.ranks if rank.node == node_id and not rank.exited]

    def kernel_says_oom(self, number: int) -> None:
        """The kernel's log, as its collector reads it, comes with the node's next snapshot."""
        rank = self.rank(number)
        event = Event(
            time=self.now - self.skews[rank.node],
            kind="kernel.oom",
            message=f"Out of memory: Killed process {rank.pid} (python)",
            attributes={"pid": str(rank.pid)},
        )
        self.report(rank.node, (event,))

    def report(self, node_id: str, events: tuple[Event, ...] = ()) -> None:
        node = next(node for node in self.nodes if node.id == node_id)
        self.sequences[node_id] = self.sequences.get(node_id, 0) + 1
        exits, self.exits[node_id] = tuple(self.exits[node_id]), []
        snapshot = Snapshot(
            node=node,
            time=self.now - self.skews[node_id],
            sequence=self.sequences[node_id],
            clock_shift=self.shifts.get(node_id, 0.0),
            ranks=tuple(map(self.see, self._living(node_id))),
            exits=exits,
            events=events,
            samples=sampled(self.gauges) if node is self.nodes[0] else (),
            ray_processes=self.ray_processes if node is self.nodes[0] else (),
            interval=self.paces[node_id].interval,
        )
        self.feed(SnapshotReceived(time=self.now, snapshot=snapshot))

    def see(self, rank: SimRank) -> RankSnapshot:
        progress = None
        skew = self.skews[rank.node]
        if rank.attached:
            ended = rank.step_ended_at
            progress = Progress(
                step=rank.step or None,
                step_ended_at=ended - skew if ended is not None else None,
                step_seconds=rank.durations[-1] if rank.durations else None,
                recent_step_seconds=tuple(rank.durations[-32:]),
                steps_recorded=len(rank.durations),
                phase=rank.phase,
                phase_since=rank.phase_since - skew,
                attached_at=rank.started - skew,
                last_words=(
                    LastWords(time=rank.words_at - skew, kind="exception", text=rank.words)
                    if rank.words
                    else None
                ),
            )
        return RankSnapshot(
            rank=self._identity(rank),
            process=ProcessState(
                state=rank.state,
                wchan=rank.wchan,
                cpu_seconds=rank.cpu,
                main_cpu_seconds=rank.cpu,
                main_switches=rank.switches,
                io_bytes=rank.io,
                frozen=rank.frozen,
                interpreter=rank.interpreter if rank.attached else "unknown",  # type: ignore[arg-type]
            ),
            progress=progress,
        )

    def answer(self, action: AnyAction) -> None:
        at = self.now + 0.2
        match action:
            case TakeStacks():
                self._answer_with_stacks(action)
                return
            case AskRecorder():
                at = self.now + self.recorder_seconds
                event: AnyEvent = RecorderExplained(
                    time=at, incident=action.incident, facts=self.recorder
                )
            case ProbeNode():
                alive = action.node_id not in self.dead_nodes
                event = NodeProbed(time=at, node_id=action.node_id, alive=alive)
            case Capture():
                deeper = self.capture_answer
                event = CaptureDone(
                    time=at,
                    incident=action.incident.id,
                    bundle="/tmp/bundle",
                    facts=tuple(map(deeper, self.ranks)) if deeper else (),
                    logs=self.logs,
                )
            case _:
                return
        self.pending.append((at, event))

    def _answer_with_stacks(self, action: TakeStacks) -> None:
        at = self.now + self.stacks_seconds
        for _ in range(action.looks):
            taken = self._look(action, at)
            if self.stacks_seconds <= ROUND_SECONDS:
                self.pending.append((at, taken))
                continue
            told = self.now + ROUND_SECONDS
            late = msgspec.structs.replace(taken, asked_at=self.now)
            without = msgspec.structs.replace(taken, time=told, facts=())
            self.pending += [(told, without), (at, late)]

    def _look(self, action: TakeStacks, at: float) -> StacksTaken:
        pids = {rank.process.pid for rank in action.ranks}
        facts = tuple(self.stack_answer(r) for r in self.ranks if r.pid in pids and not r.exited)
        return StacksTaken(time=at, incident=action.incident, round=action.round, facts=facts)

    def _deliver(self) -> None:
        due = [event for at, event in self.pending if at <= self.now]
        self.pending = [(at, event) for at, event in self.pending if at > self.now]
        for event in due:
            self.feed(event)

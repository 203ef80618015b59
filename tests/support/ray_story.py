"""A job of Ray actors, played second by second around a real engine.

What is true stands in ``RayStory``: its processes with their titles, stacks and states, the calls
that have not ended, and what cannot be placed. The engine sees an agent's snapshot and a tick each
second; a look that it asks for is answered two seconds later, by what is true then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

import msgspec

from ray_sentinel.engine.actions import (
    AnyAction,
    AskEndedCalls,
    Capture,
    LookAtRayJob,
    TakeStacks,
)
from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import (
    AnyEvent,
    CaptureDone,
    EndedCallsTold,
    RayJobLooked,
    RayTableTold,
    SnapshotReceived,
    StacksTaken,
    Tick,
)
from ray_sentinel.engine.ray.long_calls import running_since
from ray_sentinel.engine.telemetry.inference import deployment_of
from ray_sentinel.model.connections import AwaitedAnswer
from ray_sentinel.model.identity import Node, ProcessId, Rank, RankId
from ray_sentinel.model.incident import Culprit, Incident
from ray_sentinel.model.placement import PlacedGroup, Placement
from ray_sentinel.model.progress import (
    ProcessState,
    RankSnapshot,
    RayExit,
    RayProcess,
    Snapshot,
)
from ray_sentinel.model.ray_calls import (
    CallKind,
    CallState,
    CallWaker,
    EndedCalls,
    FailedCall,
    LookedAt,
    PendingGroup,
    RayActor,
    RayCall,
    RayCalls,
    RayDriver,
    RayLook,
    going_on,
    of_job,
)
from ray_sentinel.model.runtime_env import NodeEnvironments
from ray_sentinel.model.samples import SampleBatch
from ray_sentinel.model.stacks import ChildWork, StackFact
from tests.support.samples import sampled

START = 1_700_000_000.0
NODE = Node(id="n1", host="host1", address="10.0.0.1")
JOB = "02000000"
OTHER_JOB = "03000000"
LOOK_SECONDS = 2.0
"""Until a look is answered."""
_NOBODY = ProcessId("", 0)

RESTS = StackFact(
    process=_NOBODY,
    signature=("main_loop (ray/_private/worker.py:900)",),
    activity="idle",
    label="idle",
)
SLEEPS = StackFact(
    process=_NOBODY,
    signature=("generate (rollout.py:1)", "score (reward.py:88)"),
    activity="sleep",
    label="sleeping",
    waits_for_others=False,
)
GETS = StackFact(
    process=_NOBODY,
    signature=("main (train.py:1)", "get (ray/_private/worker.py:2800)"),
    activity="network-wait",
    label="in ray.get",
    waits_for_others=False,
)
SELECTS = msgspec.structs.replace(
    GETS, signature=("main (train.py:1)", "wait (ray/_private/worker.py:2900)")
)
PLACES = msgspec.structs.replace(
    GETS, signature=("main (train.py:1)", "wait (ray/util/placement_group.py:80)")
)
REDUCES = StackFact(
    process=_NOBODY,
    signature=("train (train.py:1)", "all_reduce (torch/distributed/distributed_c10d.py:2800)"),
    activity="collective-wait",
    label="in all_reduce",
    waits_for_others=True,
    operation="all_reduce",
)
COMPUTES = StackFact(
    process=_NOBODY,
    signature=("generate (rollout.py:1)", "score (reward.py:88)"),
    activity="compute",
    waits_for_others=False,
    active=True,
)
ITEMS = msgspec.structs.replace(
    COMPUTES,
    signature=("generate (rollout.py:14)",),
    activity="unknown",
    waits_for_others=None,
    users_code=True,
)
"""In the user's line that fetches a number from the device, as a tool sees it that shows no native
frames."""
SYNCHRONIZES = msgspec.structs.replace(
    ITEMS,
    signature=("generate (rollout.py:14)", "synchronize (torch/cuda/__init__.py:1162)"),
    activity="device-wait",
    label="waiting for the device",
)
WRITES = StackFact(
    process=_NOBODY,
    state="D",
    signature=("save (rollout.py:40)",),
    activity="storage-wait",
    label="writing",
    waits_for_others=False,
)
STOPPED = StackFact(process=_NOBODY, state="T", signature=("generate (rollout.py:1)",))
MUTE = StackFact(process=_NOBODY, error="py-spy may not look (ptrace): allow it by ...")


@dataclass(eq=False)
class StoryProcess:
    """A driver, or an actor: then ``kind`` is its class."""

    pid: int
    kind: str = ""
    number: int = 0
    job: str = JOB
    rank: int | None = None
    """Of an actor in a process group."""
    title: str = ""
    stack: StackFact = RESTS
    goes_on: bool = False
    """Its stack is another one in each round."""
    goes_round: bool = False
    """In each round it is at another line of its innermost function."""
    wakes: bool = False
    """The thread that tells is put on a CPU between two looks."""
    waits_for: float | None = None
    """Seconds for which it waits each time, if it begins again when nothing has come."""
    woken_every: float | None = None
    """Seconds after which it is put on a CPU each time, if not when it has waited that long."""
    wants: float | None = None
    """Share of the time for which it runs or waits for a CPU, where that is told."""
    child_works: float | None = None
    """Share of the time for which the child works for whose end it waits."""
    child_since: float | None = None
    """When that was started, where it is not known whether it is awaited."""
    child_ran: float = 0.0
    child_seen_at: float = START
    busy_since: float | None = None
    """Since when it has not rested."""
    state: str = "S"
    actor_state: str = "ALIVE"
    since: float = START
    moved_at: float = START
    worked: int = 0
    """Seconds."""

    @property
    def id(self) -> ProcessId:
        """As its agent names it."""
        return ProcessId(NODE.host, self.pid, 1)

    @property
    def actor(self) -> str:
        """Ray's id, of an actor."""
        return f"{self.pid:016x}{self.job}" if self.kind else ""

    def begins(self, method: str, now: float, stack: StackFact) -> None:
        """From now on it runs ``method`` of its class, and stands at one place."""
        self.title = f"{self.kind}.{method}"
        self.since = self.moved_at = now
        self.stack = stack

    def spins(self, method: str, now: float, stack: StackFact = COMPUTES) -> None:
        """From now on it runs ``method`` without a rest, in one function."""
        self.begins(method, now, stack)
        self.busy_since = now

    def works(self, now: float) -> None:
        """It was on a CPU in the last second."""
        self.moved_at = now - 0.1
        self.worked += 1

    def rests(self, now: float) -> None:
        """Its call has ended."""
        self.title, self.stack, self.goes_on = self.kind, RESTS, False
        self.goes_round, self.wakes, self.busy_since = False, False, None
        self.since = self.moved_at = now

    def fact(self, at: float) -> StackFact:
        """What a tool sees of it."""
        signature = self.stack.signature
        if self.goes_on:
            signature = (*signature, f"layer_{int(at) % 7} (rollout.py:{int(at) % 997})")
        if self.goes_round:
            signature = (*signature[:-1], f"score (reward.py:{88 + int(at) % 3})")
        switches, tid = int(at) if self.wakes else self.stack.switches, self.stack.tid
        if self.waits_for is not None:
            switches, tid = int(at / (self.woken_every or self.waits_for)), tid or self.pid
        return msgspec.structs.replace(
            self.stack,
            process=self.id,
            at=at,
            signature=signature,
            tid=tid,
            switches=switches,
            wanted=None if self.wants is None else self.wants * (at - START),
            ran=None if self.wants is None else self.wants * (at - START),
            children=self._children(at),
            wakes_at=self.stack.wakes_at if self.waits_for is None else at + self.waits_for,
        )

    def _children(self, at: float) -> ChildWork | None:
        if self.child_works is None:
            return None
        self.child_ran += self.child_works * (at - self.child_seen_at)
        self.child_seen_at = at
        child, since = self.pid + 5000, self.child_since
        ages = {} if since is None else {child: at - since}
        return ChildWork(at, {child: self.child_ran}, ages)


@dataclass(eq=False)
class StoryEngine:
    """An inference engine of two ranks below an actor, which tells its requests."""

    above: StoryProcess
    running: int = 0
    waiting: int = 0
    tokens: int = 0
    job: str = "sglang-4711"
    stack: StackFact = RESTS
    """Of its ranks."""

    @property
    def processes(self) -> list[ProcessId]:
        """Its ranks."""
        return [ProcessId(NODE.host, self.above.pid + 1000 + rank, 1) for rank in range(2)]

    def ranks(self) -> Iterator[RankSnapshot]:
        """As their agent sees them."""
        for rank, process in enumerate(self.processes):
            yield RankSnapshot(
                rank=Rank(
                    id=RankId(self.job, 0, rank),
                    process=process,
                    node=NODE.id,
                    world_size=2,
                    role="engine",
                    source="title",
                ),
                process=ProcessState(state="S", main_switches=400 * self.tokens),
            )

    def samples(self) -> dict[str, float]:
        """What it tells."""
        return {
            f'server_requests{{job="{self.job}",state="running"}}': self.running,
            f'server_requests{{job="{self.job}",state="waiting"}}': self.waiting,
            f'server_tokens_total{{job="{self.job}",kind="generation"}}': self.tokens,
        }


def _told_driver(job: str, pid: int = 0, address: str = "") -> RayDriver:
    """As Ray tells it; without a pid, it has ended."""
    return RayDriver(
        job=job,
        pid=pid,
        address=address,
        command="python train_rl.py",
        name=f"train_rl-{int(job[:2], 16)}",
        started=START - 100.0,
        ended=not pid,
    )


def _told_actor(one: StoryProcess) -> RayActor:
    lives = one.actor_state == "ALIVE"
    return RayActor(
        id=one.actor,
        job=one.job,
        kind=one.kind,
        number=one.number,
        state=one.actor_state,
        node=NODE.id if lives else "",
        pid=one.pid if lives else 0,
    )


def driver(job: str = JOB, pid: int = 1) -> StoryProcess:
    """One that waits in ``ray.get``."""
    return StoryProcess(pid, job=job, stack=GETS)


def actors(
    kind: str, count: int, first_pid: int, job: str = JOB, *, ranks: bool = False
) -> list[StoryProcess]:
    """Some of one class, all idle; with ``ranks`` they make a process group."""
    return [
        StoryProcess(first_pid + n, kind, n, job, rank=n if ranks else None, title=kind)
        for n in range(count)
    ]


@dataclass
class RayStory:
    """Processes of one node, and the engine that watches them."""

    processes: list[StoryProcess]
    answers: bool = True
    """Whether looks are answered."""
    now: float = START
    engine: Engine = field(default_factory=Engine)
    calls: list[RayCall] = field(default_factory=list)
    groups: tuple[PendingGroup, ...] = ()
    free_on: dict[str, dict[str, float]] = field(default_factory=lambda: {"node1": {"CPU": 1.0}})
    placement: Placement | None = None
    placed: tuple[PlacedGroup, ...] = ()
    environments: tuple[NodeEnvironments, ...] = ()
    ended: dict[str, EndedCalls] = field(default_factory=dict)
    failed: tuple[FailedCall, ...] = ()
    wakers: tuple[CallWaker, ...] = ()
    changes: tuple[int, ...] = ()
    """The seconds in which those began or ended."""
    gauges: dict[str, float] = field(default_factory=dict)
    """What the node samples, by ``name{label="value"}``."""
    served: list[StoryEngine] = field(default_factory=list)
    asked: list[AwaitedAnswer] = field(default_factory=list)
    """Answers that processes await over connections of their own."""
    serving: list[StoryProcess] = field(default_factory=list)
    """Drivers that listen for requests."""
    below: list[StoryProcess] = field(default_factory=list)
    """Processes that Ray does not know, and that are looked at because they are to answer."""
    unseen: list[StoryProcess] = field(default_factory=list)
    """Processes whose stacks cannot be taken."""
    exits: list[RayExit] = field(default_factory=list)
    """The ends of processes that agents saw, and that Ray has not noticed."""
    log: list[AnyEvent] = field(default_factory=list)
    looks: int = 0
    _sequence: int = 0
    _due: list[tuple[float, AnyAction]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tell_table()

    def feed(self, event: AnyEvent) -> None:
        """One event to the engine."""
        self.log.append(event)
        for action in self.engine.handle(event):
            late = LOOK_SECONDS if isinstance(action, LookAtRayJob) else 1.0
            self._due.append((self.now + late, action))

    def tell_table(self) -> None:
        """Ray's table as it is now."""
        known = self._known()
        living = {one.job for one in known.drivers}
        table = msgspec.structs.replace(
            known,
            actors=tuple(one for one in known.actors if one.job in living),
            calls=(),
            free_on={},
            placement=None,
            placed=(),
            environments=(),
            ended={},
            changes=(),
            failed=(),
            wakers=(),
        )
        self.feed(RayTableTold(time=self.now, table=table))

    def run(self, seconds: int, each: Callable[[], object] = lambda: None) -> None:
        """Let time pass; ``each`` happens at the begin of every second."""
        for _ in range(seconds):
            self.now += 1.0
            each()
            self._sequence += 1
            self.feed(SnapshotReceived(time=self.now, snapshot=self._snapshot()))
            self.feed(Tick(time=self.now))
            due = [action for at, action in self._due if at <= self.now]
            self._due = [(at, action) for at, action in self._due if at > self.now]
            for action in due:
                self._answer(action)

    def train(self, seconds: int, *, method: str = "generate", job: str = JOB) -> None:
        """Healthy iterations of four seconds: the actors that are no ranks run ``method`` for
        three, the ranks ``update`` for one, and all rest meanwhile."""
        self.run(seconds, lambda: self.iterate(method, job))

    def iterate(self, method: str = "generate", job: str = JOB) -> None:
        """One second of that."""
        phase = int(self.now) % 4
        for one in self.of(job):
            wanted = one.kind
            if one.kind and (phase == 3) == (one.rank is not None):
                wanted = f"{one.kind}.{'update' if one.rank is not None else method}"
            if one.title != wanted:
                one.title, one.since = wanted, self.now - 0.5
            if one.title != one.kind or not one.kind:
                one.works(self.now)

    def of(self, job: str) -> list[StoryProcess]:
        """The processes of one job."""
        return [one for one in self.processes if one.job == job]

    def call(
        self,
        caller: StoryProcess,
        actor: StoryProcess,
        method: str,
        state: CallState = "running",
        kind: CallKind = "actor-task",
        ago: float = 0.0,
    ) -> None:
        """A process has called an actor, so many seconds ``ago``; what it runs itself is the call
        that was made last to it."""
        runs = [c for c in self.calls if c.pid == caller.pid and c.state == "running"]
        self.calls.append(
            RayCall(
                id=f"{len(self.calls):016x}{actor.actor}"
                if kind != "actor-creation"
                else "f" * 16 + actor.actor,
                parent=runs[-1].id if runs else "",
                job=caller.job,
                kind=kind,
                name=f"{actor.kind}.{method}",
                actor=actor.actor,
                state=state,
                since=self.now - ago,
                made=self.now,
                node=NODE.id if state == "running" else "",
                pid=actor.pid if state == "running" else 0,
            )
        )

    def asks(
        self, who: StoryProcess, whom: StoryProcess, answerer: int = 0, *, lock: str = ""
    ) -> None:
        """A process has sent another a request, which ``answerer``, a pid below it, is to answer;
        0: itself. With ``lock`` it waits for the lock on a file of that name, which the other
        holds."""
        below = ProcessId(whom.id.host, answerer, 1) if answerer else whom.id
        self.asked.append(
            AwaitedAnswer(
                who=who.id, whom=whom.id, asker=who.id, answerer=below, since=self.now, lock=lock
            )
        )

    def drives(self, *drivers: StoryProcess) -> None:
        """No call is under way but the drivers' own."""
        self.calls = []
        for one in drivers:
            self.calls.append(
                RayCall(
                    id=f"d{one.job}", parent="", job=one.job, kind="driver", name="main",
                    since=self.now, made=self.now, node=NODE.id, pid=one.pid,
                )
            )  # fmt: skip

    def incident(self) -> Incident:
        """The only one; fails where there is not exactly one."""
        (incident,) = self.engine.incidents()
        return incident

    def culprits(self) -> tuple[Culprit, ...]:
        """Of the only incident."""
        verdict = self.incident().verdict
        assert verdict is not None
        return verdict.culprits

    def chain(self) -> list[tuple[str, str, str]]:
        """From, to and how, of the only incident."""
        verdict = self.incident().verdict
        assert verdict is not None
        return [(link.start, link.end, link.how) for link in verdict.chain]

    def _calls(self, call: RayCall) -> None:
        self.calls.append(call)

    def _of_job(self, job: str) -> RayCalls:
        return of_job(going_on(self._known(), {job}), job)

    def _known(self, deployments: Collection[str] = ()) -> RayCalls:
        drivers = [one for one in self.processes if not one.kind]
        living = {one.job for one in drivers}
        called = {call.actor for call in self.calls}
        ended = {one.job for one in self.processes} - living
        outliving = tuple(_told_actor(one) for one in self.processes if one.job in ended)
        return RayCalls(
            at=self.now,
            drivers=tuple(_told_driver(one.job, one.pid, NODE.address) for one in drivers),
            actors=tuple(
                _told_actor(one)
                for one in self.processes
                if one.kind
                and (
                    one.job in living
                    or one.actor in called
                    or deployment_of(one.kind) in deployments
                )
            ),
            ended_drivers=tuple(_told_driver(job) for job in sorted(ended)),
            outliving=outliving,
            calls=tuple(self.calls),
            groups=self.groups,
            free_on=self.free_on,
            placement=self.placement,
            placed=self.placed,
            environments=self.environments,
            ended=self.ended,
            changes=self.changes,
            failed=self.failed,
            wakers=self.wakers,
        )

    def _snapshot(self) -> Snapshot:
        return Snapshot(
            node=NODE,
            time=self.now,
            sequence=self._sequence,
            samples=self._samples() if int(self.now) % 5 == 0 else (),
            ranks=(
                *(self._rank(one) for one in self.processes if one.rank is not None),
                *(rank for engine in self.served for rank in engine.ranks()),
            ),
            ray_processes=tuple(
                RayProcess(
                    process=one.id,
                    title=one.title,
                    since=one.since,
                    moved_at=one.moved_at,
                    state=one.state,
                    busy_since=one.busy_since,
                    engine=next((e.job for e in self.served if e.above is one), ""),
                )
                for one in self.processes
                if not self._has_ended(one)
            ),
            ray_exits=tuple(self.exits),
        )

    def _has_ended(self, one: StoryProcess) -> bool:
        return any(ended.process == one.id for ended in self.exits)

    def _samples(self) -> tuple[SampleBatch, ...]:
        told = [self.gauges, *(engine.samples() for engine in self.served)]
        return sampled({name: value for gauges in told for name, value in gauges.items()})

    def _rank(self, one: StoryProcess) -> RankSnapshot:
        world = sum(other.rank is not None and other.kind == one.kind for other in self.processes)
        name = f"train_rl-{int(one.job[:2], 16)}.{one.kind}"
        return RankSnapshot(
            rank=Rank(
                id=RankId(name, 0, one.rank or 0),
                process=one.id,
                node=NODE.id,
                world_size=world,
                source="ray",
            ),
            process=ProcessState(
                state=one.state,
                main_switches=400 * one.worked,
                cpu_seconds=0.5 * one.worked,
                main_cpu_seconds=0.5 * one.worked,
            ),
            quiet_seconds=self.now - one.moved_at,
        )

    def _answer(self, action: AnyAction) -> None:
        match action:
            case LookAtRayJob() if self.answers:
                self.looks += 1
                self.feed(
                    RayJobLooked(time=self.now, ray_job=action.ray_job, look=self._look(action))
                )
            case AskEndedCalls(running=True) if self.answers:
                running = running_since(self._of_job(action.ray_job).calls)
                self.feed(EndedCallsTold(time=self.now, ray_job=action.ray_job, running=running))
            case AskEndedCalls() if self.answers:
                known = self._of_job(action.ray_job)
                self.feed(
                    EndedCallsTold(
                        time=self.now,
                        ray_job=action.ray_job,
                        ended=known.ended,
                        changes=known.changes,
                    )
                )
            case TakeStacks():
                wanted = {rank.process for rank in action.ranks}
                facts = [one.fact(self.now) for one in self.processes if one.id in wanted]
                facts += [
                    msgspec.structs.replace(engine.stack, process=process, at=self.now)
                    for engine in self.served
                    for process in engine.processes
                    if process in wanted
                ]
                self.feed(
                    StacksTaken(
                        time=self.now,
                        incident=action.incident,
                        round=action.round,
                        facts=tuple(facts),
                    )
                )
            case Capture():
                self.feed(
                    CaptureDone(time=self.now, incident=action.incident.id, bundle="/tmp/bundle")
                )

    def _look(self, action: LookAtRayJob) -> RayLook:
        known = going_on(self._known(action.deployments), {action.ray_job})
        serving = {a.id for a in known.actors if deployment_of(a.kind) in action.deployments}
        calls = of_job(known, action.ray_job, serving)
        called = {actor.id for actor in calls.actors if actor.job != action.ray_job}
        lent = [one for one in self.processes if one.actor in called]
        mine = [*self.of(action.ray_job), *lent, *self.below]
        return RayLook(
            calls=calls
            if action.times
            else msgspec.structs.replace(calls, ended={}, changes=(), failed=(), wakers=()),
            processes=tuple(
                LookedAt(node=NODE.id, address=NODE.address, process=one.id) for one in mine
            ),
            rounds=tuple(
                tuple(
                    one.fact(self.now - ago)
                    for one in mine
                    if one not in self.unseen and not self._has_ended(one)
                )
                for ago in (1.0, 0.0)
            ),
            answers=tuple(self.asked),
            serving=tuple(one.id for one in self.serving),
        )

"""All jobs of a cluster at one moment: their processes, and the roots of what they wait for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from ray_sentinel.evidence.stacks.compare import awaiting_programs, movements, woken
from ray_sentinel.evidence.stacks.tree import place_of
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.incident import ChainLink
from ray_sentinel.model.ray_calls import RayLook
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.waitgraph.chain import ending, in_process, links, sentence
from ray_sentinel.waitgraph.engine_work import EngineWork
from ray_sentinel.waitgraph.facts import (
    CALLED,
    QUEUED,
    RUNS_IN,
    Elsewhere,
    FactKind,
    Moves,
    WaitFact,
    WaitNode,
)
from ray_sentinel.waitgraph.meetings import meeting
from ray_sentinel.waitgraph.ray_calls import NOT_SEEN, RayFacts
from ray_sentinel.waitgraph.solver import GraphRoot, RootKind, solve
from ray_sentinel.waitgraph.unmet import RAY, Lack, lack_of

TOLD_WITHIN = 5.0
"""Seconds after which it is known at the latest that something has begun or ended in a job: agents
and Ray's workers report once a second, or later if they are short of CPU time."""


class RootMember(msgspec.Struct, frozen=True, kw_only=True):
    """A process among the members of a root."""

    process: ProcessId
    role: str
    """"driver", an actor's class, or "task"."""
    label: str
    actor: str = ""
    """Ray's id of the actor, in hex."""
    methods: tuple[str, ...] = ()
    """The calls that it runs."""
    begun: dict[str, float] = {}
    """When the oldest of these calls of each name began, in Unix time, according to Ray."""
    asked_in: tuple[str, ...] = ()
    """The calls of those that await an answer from it over a connection; for a driver, an empty
    name."""

    @property
    def does(self) -> tuple[str, ...]:
        """The calls that it runs, and those in which its answer is awaited: answering takes no
        longer than the calls that await the answer."""
        return (*self.methods, *self.asked_in)


class WaitRoot(msgspec.Struct, frozen=True, kw_only=True):
    """What holds a job up, with the chain that leads to it."""

    kind: RootKind
    who: tuple[str, ...]
    """The names of its members."""
    why: str
    fault: FactKind = ""
    """What is proven of its only member."""
    lacks: Lack | None = None
    """What is missing, for a root that is not a process: a place to run, memory, an environment."""
    moves: int | None = None
    """For an environment being built, a thread other than the main one that the kernel blocks, and
    an actor that awaits something of its own: a number that changes whenever it has moved."""
    waiters: int
    """How many processes wait for it, directly or not."""
    processes: tuple[RootMember, ...] = ()
    """The processes among its members."""
    waiting: tuple[ProcessId, ...] = ()
    """The processes that wait for it."""
    chain: tuple[ChainLink, ...]
    sentence: str
    meeting: str = ""
    """What actors of several classes have to do together, and cannot because of it, such as
    "broadcast of Trainer and Engine"."""
    engine: str = ""
    """The inference engine that hangs below its only member."""


class JobProcess(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a job."""

    label: str
    role: str
    host: str
    pid: int
    calls: tuple[str, ...] = ()
    """The calls that it runs."""
    activity: str = ""
    place: str = ""
    moved: bool = False
    problem: str = ""
    """Why its stack is unknown."""


class StandingProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process that runs a call and stands still where it waits for nobody, or goes round there on
    a CPU, whether or not anybody waits for it. Drivers count only if they go round. Who asks its
    device over and over whether it has finished goes round, too."""

    member: RootMember
    place: str
    """What it does, and where, such as "sleeping in score (reward.py:88)"."""
    called_by: str = ""
    """The name of the process that made the call."""
    begun: tuple[float, ...] = ()
    """Unix times at which its calls began according to Ray, and since when its answer has been
    awaited."""
    round_in: StackFact | None = None
    """The place in which it goes round."""
    at_device: bool = False
    """Whether it waits for its device there."""
    switches: int | None = None
    """How often the thread that stands there had been put on a CPU; given where agents do not watch
    it as a main thread."""


class JobPicture(msgspec.Struct, frozen=True, kw_only=True):
    """One Ray job."""

    job: str
    """Ray's job id, in hex."""
    command: str
    started: float | None
    """Unix time at which it started."""
    roots: tuple[WaitRoot, ...]
    processes: tuple[JobProcess, ...]
    standing: tuple[StandingProcess, ...] = ()
    facts: tuple[StackFact, ...] = ()
    """The facts of its processes, in order, if their stacks are known."""


class ClusterPicture(msgspec.Struct, frozen=True, kw_only=True):
    """All jobs."""

    time: float
    """Unix time of the picture."""
    jobs: tuple[JobPicture, ...] = ()
    notes: tuple[str, ...] = ()
    """What could not be seen, and why."""


def pictured(
    look: RayLook,
    groups: Mapping[ProcessId, str] | None = None,
    engines: Mapping[ProcessId, EngineWork] | None = None,
    silence: float = 0.0,
) -> ClusterPicture:
    """The picture of one look; ``groups`` and ``engines`` are those of ``RayFacts``. Nothing has
    begun or ended in the job for ``silence`` seconds, so its coroutines may await programs that
    were started since."""
    rounds = [awaiting_programs(one, silence + TOLD_WITHIN) for one in look.rounds]
    started: dict[tuple[str, int], ProcessId] = {}
    for one in look.processes:
        started[one.node, one.process.pid] = one.process
        started.setdefault((one.address, one.process.pid), one.process)
    translated = RayFacts(
        look.calls,
        started,
        {fact.process: fact for fact in (rounds[-1] if rounds else ())},
        movements(rounds),
        groups,
        woken(rounds),
        engines,
        look.answers,
        look.serving,
    )
    return picture(translated, look.notes)


def picture(translated: RayFacts, notes: tuple[str, ...] = ()) -> ClusterPicture:
    """The picture of one moment; ``notes`` tell what could not be seen, and why."""
    calls, known, facts = translated.ray, translated.processes.known, translated.facts
    drivers = {node for node, one in known.items() if one.role == "driver"}
    roots = [(root, _jobs(root, translated)) for root in solve(facts, drivers)]
    standing = tuple(_standing(facts, translated))
    jobs = tuple(
        JobPicture(
            job=driver.job,
            command=driver.command,
            started=driver.started,
            roots=tuple(
                _wait_root(root, translated, calls.at)
                for root, jobs_of in roots
                if driver.job in jobs_of
            ),
            processes=tuple(
                _process(node, translated) for node, one in known.items() if one.job == driver.job
            ),
            standing=tuple(one for job, one in standing if job == driver.job),
            facts=tuple(
                translated.stacks[node]
                for node, one in known.items()
                if one.job == driver.job and node in translated.stacks
            ),
        )
        for driver in calls.drivers
    )
    if calls.left_off:
        notes = (*notes, f"{calls.left_off} unfinished calls more were not looked at")
    return ClusterPicture(time=calls.at, jobs=jobs, notes=notes)


def _jobs(root: GraphRoot, translated: RayFacts) -> set[str]:
    """The jobs of the processes that wait for a root, and of its members."""
    known = translated.processes.known
    nodes = (*root.waiters, *root.members, *(edge.who for edge in root.chain))
    return {known[node].job for node in nodes if node in known}


def _wait_root(root: GraphRoot, translated: RayFacts, now: float) -> WaitRoot:
    names, known = translated.names, translated.processes.known
    only = root.members[0] if len(root.members) == 1 else None
    chain = links(root.chain, names) or tuple(_called(root, translated))
    return WaitRoot(
        kind=root.kind,
        who=tuple(names.get(node, node.key) for node in root.members),
        why=ending(root),
        fault=root.fault,
        lacks=lack_of(only) if only else None,
        moves=translated.moves(only, set(root.waiters)) if only else None,
        waiters=len(root.waiters),
        processes=tuple(_member(node, translated) for node in root.members if node in known),
        waiting=tuple(known[node].process for node in root.waiters if node in known),
        chain=chain,
        sentence=sentence(root, chain, names, now),
        meeting=meeting(root, translated),
        engine=translated.engine(only) if only else "",
    )


def _called(root: GraphRoot, translated: RayFacts) -> Iterator[ChainLink]:
    """A link in place of a chain if nobody waits for a process alone: who has called it."""
    for call in translated.given(root.members[0])[:1]:
        how = RUNS_IN if call.state == "running" else QUEUED
        at = translated.names.get(root.members[0], "")
        yield ChainLink(
            start=translated.maker(call) or "somebody",
            end=in_process(call.name or call.kind, at, how),
            how=CALLED,
            since=call.since,
            witness=RAY,
        )


def _member(node: WaitNode, translated: RayFacts) -> RootMember:
    known = translated.processes.known[node]
    runs = [call for call in translated.runs(node) if call.name]
    begun: dict[str, float] = {}
    for call in runs:
        if call.since is not None:
            begun[call.name] = min(call.since, begun.get(call.name, call.since))
    return RootMember(
        process=known.process,
        role=known.role,
        label=known.label,
        actor=known.actor,
        methods=tuple(call.name for call in runs),
        begun=begun,
        asked_in=translated.asked_in(node),
    )


def _standing(
    facts: Iterable[WaitFact], translated: RayFacts
) -> Iterator[tuple[str, StandingProcess]]:
    """The standing processes, each with its job."""
    moving = {fact.process for fact in facts if isinstance(fact, Moves)}
    for fact in facts:
        if not isinstance(fact, Elsewhere) or not fact.place:
            continue
        found, runs = translated.processes.known[fact.process], translated.runs(fact.process)
        goes_round = translated.goes_round(fact.process)
        asked = translated.asked_since(fact.process)
        works = bool(runs) or asked is not None or translated.works_untold(fact.process)
        if translated.waits_for_wakers(fact.process):
            continue
        if goes_round is None and (fact.process in moving or not works):
            continue
        if not works and found.role != "driver":
            continue
        yield (
            found.job,
            StandingProcess(
                member=_member(fact.process, translated),
                place=fact.why,
                called_by=translated.maker(runs[0]) if runs else translated.asker(fact.process),
                begun=tuple(filter(None, (*(call.since for call in runs), asked))),
                round_in=goes_round,
                at_device=translated.waits_for_device(fact.process),
                switches=translated.thread_switches(fact.process),
            ),
        )


def _process(node: WaitNode, translated: RayFacts) -> JobProcess:
    one, fact = translated.processes.known[node], translated.stacks.get(node)
    return JobProcess(
        label=one.label,
        role=one.role,
        host=one.process.host,
        pid=one.process.pid,
        calls=tuple(call.name for call in translated.runs(node) if call.name),
        activity=fact.label if fact else "",
        place=place_of(fact) if fact else "",
        moved=translated.movements.get(node) == "moved",
        problem=(fact.error if not fact.signature else "") if fact else NOT_SEEN,
    )

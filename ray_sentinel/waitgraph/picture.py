"""All jobs of a cluster at one moment: their processes, and the roots of what they wait for."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ray_sentinel.evidence.stacks.compare import Movement
from ray_sentinel.evidence.stacks.tree import place_of
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.incident import ChainLink
from ray_sentinel.model.ray_calls import RayCalls
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.waitgraph.chain import ending, links, sentence
from ray_sentinel.waitgraph.facts import WaitNode, process_node
from ray_sentinel.waitgraph.ray_calls import NOT_SEEN, RayFacts
from ray_sentinel.waitgraph.solver import GraphRoot, RootKind, solve


class WaitRoot(msgspec.Struct, frozen=True, kw_only=True):
    """What holds a job up, with the chain that leads there."""

    kind: RootKind
    who: tuple[str, ...]
    """The names of its members."""
    why: str
    waiters: int
    """Processes that wait for it, directly or not."""
    chain: tuple[ChainLink, ...]
    sentence: str


class JobProcess(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a job."""

    label: str
    role: str
    host: str
    pid: int
    calls: tuple[str, ...] = ()
    """What it runs."""
    activity: str = ""
    place: str = ""
    moved: bool = False
    problem: str = ""
    """Why its stack is not known."""


class JobPicture(msgspec.Struct, frozen=True, kw_only=True):
    """One Ray job."""

    job: str
    """Ray's job id, in hex."""
    command: str
    started: float | None
    """Unix time."""
    roots: tuple[WaitRoot, ...]
    processes: tuple[JobProcess, ...]
    facts: tuple[StackFact, ...] = ()
    """Of its processes, in their order, where their stacks are known."""


class ClusterPicture(msgspec.Struct, frozen=True, kw_only=True):
    """All jobs."""

    time: float
    """Unix time."""
    jobs: tuple[JobPicture, ...] = ()
    notes: tuple[str, ...] = ()
    """What could not be seen, and why."""


def picture(
    calls: RayCalls,
    started: Mapping[tuple[str, int], ProcessId],
    stacks: Mapping[ProcessId, StackFact],
    movements: Mapping[ProcessId, Movement],
    notes: tuple[str, ...] = (),
) -> ClusterPicture:
    """From what Ray and the stacks of one moment say; ``started`` as in ``RayFacts``."""
    translated = RayFacts(calls, started, stacks, movements)
    roots = [(root, _jobs(root, translated)) for root in solve(translated.facts())]
    jobs = tuple(
        JobPicture(
            job=driver.job,
            command=driver.command,
            started=driver.started,
            roots=tuple(
                _told(root, translated.names, calls.at)
                for root, jobs_of in roots
                if driver.job in jobs_of
            ),
            processes=_processes(driver.job, translated, stacks, movements),
            facts=tuple(
                stacks[found.process]
                for found in translated.processes.known.values()
                if found.job == driver.job and found.process in stacks
            ),
        )
        for driver in calls.drivers
    )
    if calls.left_off:
        notes = (*notes, f"{calls.left_off} unfinished calls more were not looked at")
    return ClusterPicture(time=calls.at, jobs=jobs, notes=notes)


def _jobs(root: GraphRoot, translated: RayFacts) -> set[str]:
    """The jobs of those that wait for a root, and of its members."""
    known = translated.processes.known
    nodes = (*root.waiters, *root.members, *(edge.waiter for edge in root.chain))
    return {known[node].job for node in nodes if node in known}


def _told(root: GraphRoot, names: Mapping[WaitNode, str], now: float) -> WaitRoot:
    return WaitRoot(
        kind=root.kind,
        who=tuple(names.get(node, node.key) for node in root.members),
        why=ending(root),
        waiters=len(root.waiters),
        chain=links(root.chain, names),
        sentence=sentence(root, names, now),
    )


def _processes(
    job: str,
    translated: RayFacts,
    stacks: Mapping[ProcessId, StackFact],
    movements: Mapping[ProcessId, Movement],
) -> tuple[JobProcess, ...]:
    found = []
    for one in translated.processes.known.values():
        if one.job != job:
            continue
        fact = stacks.get(one.process)
        found.append(
            JobProcess(
                label=one.label,
                role=one.role,
                host=one.process.host,
                pid=one.process.pid,
                calls=tuple(c.name for c in translated.runs(process_node(one.process)) if c.name),
                activity=fact.label if fact else "",
                place=place_of(fact) if fact else "",
                moved=movements.get(one.process) == "moved",
                problem=(fact.error if not fact.signature else "") if fact else NOT_SEEN,
            )
        )
    return tuple(found)

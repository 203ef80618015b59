"""The stacks of all processes of the cluster's jobs, from their nodes' agents, and Ray's calls.

People request it, and so does the engine if a job is silent: the control store and the agents are
asked once for each round.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec

from ray_sentinel.actors.agent_calls import AgentCalls, by_name
from ray_sentinel.actors.coordinator.ray.calls import unfinished_calls
from ray_sentinel.actors.hosts import RayNode, ray_nodes
from ray_sentinel.actors.messages import Connections, Sampled, pack
from ray_sentinel.engine.telemetry.inference import deployment_of
from ray_sentinel.model.connections import AwaitedAnswer, Connection
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.ray_calls import LookedAt, RayCalls, RayLook, of_job
from ray_sentinel.model.runtime_env import NodeEnvironments
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.waitgraph.answers import awaited_answers, serving_drivers
from ray_sentinel.waitgraph.picture import ClusterPicture, pictured

ROUND_SECONDS = 15.0
"""Seconds that the agents have to take and read the stacks of their nodes."""
GAP_SECONDS = 1.0
"""Seconds between two rounds: what moves in between is not stuck."""
ROUNDS = 2
ENVIRONMENT_SECONDS = 5.0
"""Seconds that the agents have to say which runtime environments are built on their nodes."""
CONNECTION_SECONDS = 3.0
"""Seconds that the agents have to report connections, once the stacks are there."""


def inspect_jobs(ray: Any) -> ClusterPicture:
    """Two rounds of stacks of all jobs of the cluster that ``ray`` is connected to.

    Blocks for some seconds. What could not be seen is in ``notes``.
    """
    return pictured(gather_look(ray, times=True))


def stack_now(ray: Any, node_ids: Iterable[str], pid: int) -> Sampled:
    """One round of harmless stacks of one process, by the agents of the nodes that it may be on:
    the nodes of one machine share a name. Blocks for ``ROUND_SECONDS`` at most."""
    found, problems = _round(
        partial(AgentCalls, ray, by_name(ray)), dict.fromkeys(node_ids, (pid,))
    )
    return Sampled(facts=tuple(found.values()), problems=tuple(problems))


def gather_look(
    ray: Any,
    job: str = "",
    *,
    times: bool = False,
    agents: Mapping[str, Any] | None = None,
    deployments: Collection[str] = (),
) -> RayLook:
    """The raw evidence of ``inspect_jobs``; of only one job if ``job`` (Ray's id, in hex) is given,
    and of the replicas of some ``deployments`` (see ``LookAtRayJob``). With ``times``, it also asks
    how long ended calls took, and whose calls ended waits. ``agents`` are the known handles by node
    id; the others are looked up."""
    calls = unfinished_calls(
        ray.get_runtime_context().gcs_address, job, times=times, deployments=deployments
    )
    if job:
        replicas = {one.id for one in calls.actors if deployment_of(one.kind) in deployments}
        calls = of_job(calls, job, replicas)
    nodes = {id_: node for id_, node in ray_nodes(ray.nodes()).items() if node.alive}
    wanted, asking = _pids(calls, nodes), partial(AgentCalls, ray, by_name(ray, agents))
    rounds: list[dict[tuple[str, int], StackFact]] = []
    builds: list[dict[str, NodeEnvironments]] = []
    answers: tuple[AwaitedAnswer, ...] = ()
    serving: frozenset[ProcessId] = frozenset()
    notes: dict[str, None] = dict.fromkeys(filter(None, (calls.problem,)))
    # An environment is built for what has been given a node, and Ray does not say which.
    unsure = any(call.state == "unplaced" and call.environment for call in calls.calls)
    left = ROUNDS
    while left:
        if rounds:
            time.sleep(GAP_SECONDS)
        built = asking("runtime_environments", dict.fromkeys(nodes, ()) if unsure else {})
        ends = asking("connections", _packed(wanted) if not rounds else {})
        found, problems = _round(asking, wanted)
        rounds.append(found)
        notes |= dict.fromkeys(problems)
        builds.append(_environments(built))
        left -= 1
        if len(rounds) == 1:
            told = ends.read(Connections, CONNECTION_SECONDS)
            notes |= dict.fromkeys(one.problem for one in told.values() if one.problem)
            connections = {id_: one.found for id_, one in told.items()}
            drivers, ports = _ports(calls, nodes)
            locks = {id_: one.locks for id_, one in told.items()}
            answers = (
                *awaited_answers(connections, ports, calls.at),
                *(one for found in locks.values() for one in found),
            )
            serving = frozenset(serving_drivers(connections, ports, drivers))
            if below := _unknown_answerers(answers, connections, locks):
                wanted = {id_: (*below.get(id_, ()), *pids) for id_, pids in wanted.items()}
                left = ROUNDS
    calls = msgspec.structs.replace(calls, environments=tuple(_with_movement(builds)))
    return RayLook(
        calls=calls,
        processes=tuple(_processes(wanted, nodes, rounds[-1])),
        rounds=tuple(tuple(found.values()) for found in rounds),
        answers=answers,
        serving=tuple(sorted(serving)),
        notes=tuple(notes),
    )


def _pids(calls: RayCalls, nodes: Mapping[str, RayNode]) -> dict[str, tuple[int, ...]]:
    """The pids to look at, by node id."""
    by_address: dict[str, str] = {}
    for node_id, node in nodes.items():
        by_address.setdefault(node.address, node_id)
    found: dict[str, set[int]] = defaultdict(set)
    for driver in calls.drivers:
        if driver.address in by_address:
            found[by_address[driver.address]].add(driver.pid)
    places = [(actor.node, actor.pid) for actor in calls.actors]
    for node_id, pid in (*places, *((call.node, call.pid) for call in calls.calls)):
        if pid and node_id in nodes:
            found[node_id].add(pid)
    return {node_id: tuple(sorted(pids)) for node_id, pids in found.items()}


def _processes(
    wanted: Mapping[str, tuple[int, ...]],
    nodes: Mapping[str, RayNode],
    seen: Mapping[tuple[str, int], StackFact],
) -> Iterable[LookedAt]:
    """The processes that were looked at, also those of which no stack was taken."""
    for node_id, pids in wanted.items():
        address = nodes[node_id].address
        for pid in pids:
            fact = seen.get((node_id, pid))
            process = fact.process if fact else ProcessId(address, pid)
            yield LookedAt(node=node_id, address=address, process=process)


def _ports(
    calls: RayCalls, nodes: Mapping[str, RayNode]
) -> tuple[set[tuple[str, int]], dict[tuple[str, int], int]]:
    """The drivers, and the ports at which Ray calls them and the actors, by node id and pid."""
    ports = {(actor.node, actor.pid): actor.port for actor in calls.actors if actor.port}
    drivers = set()
    for id_, node in nodes.items():
        for driver in calls.drivers:
            if driver.address == node.address:
                drivers.add((id_, driver.pid))
                ports[id_, driver.pid] = driver.port
    return drivers, ports


def _unknown_answerers(
    answers: Iterable[AwaitedAnswer],
    connections: Mapping[str, Iterable[Connection]],
    locks: Mapping[str, Iterable[AwaitedAnswer]],
) -> dict[str, tuple[int, ...]]:
    """The pids of processes that owe an answer or hold a lock and that Ray does not know, by node
    id."""
    asked = {one.answerer for one in answers if one.answerer != one.whom}
    found = {
        node_id: {one.owner.pid for one in ends if one.owner in asked}
        | {one.answerer.pid for one in locks.get(node_id, ()) if one.answerer in asked}
        for node_id, ends in connections.items()
    }
    return {node_id: tuple(sorted(pids)) for node_id, pids in found.items() if pids}


def _round(
    asking: partial[AgentCalls], wanted: Mapping[str, tuple[int, ...]]
) -> tuple[dict[tuple[str, int], StackFact], list[str]]:
    """Facts by node id and pid, and what went wrong."""
    asked = asking("stacks", _packed(wanted))
    answers = asked.read(Sampled, ROUND_SECONDS)
    problems = asked.problems
    found: dict[tuple[str, int], StackFact] = {}
    for node_id, sampled in answers.items():
        problems += sampled.problems
        found |= {(node_id, fact.process.pid): fact for fact in sampled.facts}
    return found, problems


def _packed(wanted: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[bytes, ...]]:
    return {node_id: (pack(pids),) for node_id, pids in wanted.items()}


def _environments(asked: AgentCalls) -> dict[str, NodeEnvironments]:
    """The environments by node id. Nodes that do not report any are left out: the verdict does
    without."""
    answers = asked.read(NodeEnvironments, ENVIRONMENT_SECONDS)
    return {
        node_id: msgspec.structs.replace(found, node=node_id)
        for node_id, found in answers.items()
        if found.building or found.made or not found.answers
    }


def _with_movement(rounds: Iterable[dict[str, NodeEnvironments]]) -> Iterable[NodeEnvironments]:
    """The facts of the last round, each with whether it has moved since the first round."""
    first, *_, last = rounds
    for node_id, found in last.items():
        before = first[node_id].moves if node_id in first else None
        known = before is not None and found.moves is not None
        yield msgspec.structs.replace(found, moved=before != found.moves if known else None)

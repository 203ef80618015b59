"""Who holds the resources of Ray's nodes, from the replies of its control store.

Actors and tasks in a placement group hold parts of that group, not of a node. What waits in
``ray.get`` gives its CPUs back meanwhile, which the store does not say: where actors and tasks
would hold more of a node than is used there, the tasks are left out, and then the actors.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from typing import Any

import msgspec

from ray_sentinel.actors.coordinator.ray.actors import job_name
from ray_sentinel.actors.coordinator.ray.autoscaler import (
    AutoscalerView,
    cluster_status_of,
    status_of,
)
from ray_sentinel.actors.coordinator.ray.replies import (
    MAX_NODES,
    amounts,
    creation_id,
    cut,
    enum_name,
    id_of,
    is_internal,
    labels_of,
)
from ray_sentinel.model.placement import HolderKind, PlacedGroup, Placement, ResourceHolder
from ray_sentinel.waitgraph.group_needs import group_need

MOST_HOLDERS = 32
"""Most holders of resources that are passed on."""
_KINDS: tuple[HolderKind, ...] = ("placement group", "actor", "task")
"""The kinds of holders, in the order in which it is certain that they hold what they were given."""
_OF_GROUP = "_group_"
_SLACK = 1e-4
"""The step in which Ray counts resources."""


class _Job(msgspec.Struct, frozen=True):
    name: str
    over: bool


class _Given(msgspec.Struct, frozen=True):
    """Resources of one node that one actor, task or bundle was given."""

    holder: tuple[HolderKind, str, str, str]
    """Its kind, name and job, and why it is an orphan."""
    node: str
    holds: dict[str, float]
    group: str = ""
    """The id of the placement group from which it has them."""
    bundle: int | None = None


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """Ray's replies about who holds resources; None for each part that is missing."""

    jobs: Any = None
    actors: tuple[Any, ...] = ()
    groups: Any = None
    running: Any = None
    """The calls that are running."""
    totals: Any = None
    nodes: Any = None
    status: bytes | None = None
    """What the autoscaler of version 1 says."""
    cluster_status: Any = None
    """What the autoscaler of version 2 says."""
    waiting: frozenset[str] = frozenset()
    """The ids of the calls that have not been placed: what is given to an actor whose creation
    waits, it holds from nobody but itself."""


def placement_of(
    held: Held,
    free_on: Mapping[str, Mapping[str, float]],
    placed: Sequence[PlacedGroup] = (),
    labels: Collection[str] = (),
) -> Placement:
    """The whole answer. ``free_on`` is what no one uses, by node; ``placed`` are the groups in
    which something waits for room; ``labels`` are the labels that something requests of nodes."""
    totals = totals_of(held.totals) if held.totals is not None else {}
    jobs = _jobs(held.jobs) if held.jobs is not None else {}
    actors = [one for one in held.actors if id_of(creation_id(one.actor_id)) not in held.waiting]
    given = [*_actors(actors, jobs)]
    given += _groups(held.groups, jobs) if held.groups is not None else ()
    given += _tasks(held.running, jobs) if held.running is not None else ()
    of_nodes = [one for one in given if not one.group]
    scaler = AutoscalerView(says=status_of(held.status)) if held.status is not None else None
    if held.cluster_status is not None:
        scaler = cluster_status_of(held.cluster_status) or scaler
    return Placement(
        total_on=totals,
        holders=_summed(_sure(of_nodes, totals, free_on)),
        in_groups=tuple(_in_groups(given, placed)),
        labels_on=labels_of(held.nodes, labels) if held.nodes is not None and labels else {},
        autoscaler=scaler.says if scaler else "",
        beyond=scaler.beyond if scaler else (),
    )


def totals_of(reply: Any) -> dict[str, dict[str, float]]:
    """What each node has, by node id, from a ``GetAllTotalResourcesReply``."""
    return {
        id_of(node.node_id): amounts(
            {name: amount for name, amount in node.resources_total.items() if _OF_GROUP not in name}
        )
        for node in reply.resources_list[:MAX_NODES]
    }


def _jobs(reply: Any) -> dict[str, _Job]:
    return {
        id_of(job.job_id): _Job(cut(job_name(job.entrypoint, id_of(job.job_id))), job.is_dead)
        for job in reply.job_info_list
    }


def _actors(entries: Iterable[Any], jobs: Mapping[str, _Job]) -> Iterator[_Given]:
    entries = list(entries)
    living = {entry.address.worker_id for entry in entries if entry.address.worker_id}
    for entry in entries:
        node = id_of(entry.address.node_id)
        if not node or is_internal(entry.ray_namespace):
            continue
        if enum_name(entry, "state") == "PENDING_CREATION" and not entry.address.worker_id:
            continue  # the node has been asked to run it
        job = jobs.get(id_of(entry.job_id))
        orphan = ""
        # What a detached actor created lives as long as it does, such as the replicas of Ray
        # Serve's controller.
        if job is not None and job.over and entry.owner_address.worker_id not in living:
            orphan = "detached, and its job is over" if entry.is_detached else "its driver is gone"
        name = cut(entry.name or entry.class_name.rpartition("<locals>.")[2])
        yield from _given("actor", name, id_of(entry.job_id), job, orphan, node, entry)


def _groups(reply: Any, jobs: Mapping[str, _Job]) -> Iterator[_Given]:
    for group in reply.placement_group_table_data:
        if enum_name(group, "state") != "CREATED" or is_internal(group.ray_namespace):
            continue
        id_ = id_of(group.creator_job_id)
        orphan = ""
        # One that an actor made lives as long as that does.
        if group.creator_job_dead and (group.creator_actor_dead or not group.creator_actor_id):
            orphan = "detached, and its job is over" if group.is_detached else "its job is over"
        job = jobs.get(id_)
        name = cut(group.name) or id_of(group.placement_group_id)[:8]
        for bundle in group.bundles:
            if bundle.node_id:
                holder = ("placement group", name, job.name if job else id_, orphan)
                yield _Given(holder, id_of(bundle.node_id), amounts(bundle.unit_resources))  # type: ignore[arg-type]


def _tasks(reply: Any, jobs: Mapping[str, _Job]) -> Iterator[_Given]:
    for event in reply.events_by_task:
        info, node = event.task_info, id_of(event.state_updates.node_id)
        if enum_name(info, "type") == "NORMAL_TASK" and node:
            id_ = id_of(event.job_id)
            name = cut(info.name or info.func_or_class_name)
            yield from _given("task", name, id_, jobs.get(id_), "", node, info)


def _given(
    kind: HolderKind, name: str, id_: str, job: _Job | None, orphan: str, node: str, entry: Any
) -> Iterator[_Given]:
    holds, holder = (
        amounts(entry.required_resources),
        (kind, name, job.name if job else id_, orphan),
    )
    if (need := group_need(holds)) is not None:
        yield _Given(holder, node, need.amounts, need.group, need.bundle)
    elif holds:
        yield _Given(holder, node, holds)


def _in_groups(given: Iterable[_Given], placed: Sequence[PlacedGroup]) -> Iterator[ResourceHolder]:
    """Who surely holds parts of some placed groups."""
    of: dict[str, list[_Given]] = {group.id: [] for group in placed}
    for one in given:
        if one.group in of:
            # As if the group were one node.
            of[one.group].append(msgspec.structs.replace(one, node=one.group))
    for group in placed:
        whole: dict[str, float] = defaultdict(float)
        for bundle in group.bundles:
            for name, amount in bundle.items():
                whole[name] += amount
        sure = list(_sure(of[group.id], {group.id: whole}, {group.id: {}}))
        for number in sorted({one.bundle for one in sure}, key=str):
            for holder in _summed(one for one in sure if one.bundle == number):
                yield msgspec.structs.replace(holder, group=group.id, bundle=number)


def _sure(
    given: list[_Given],
    totals: Mapping[str, Mapping[str, float]],
    free_on: Mapping[str, Mapping[str, float]],
) -> Iterator[_Given]:
    """Which of the given resources are certainly held."""
    by_node: dict[str, dict[HolderKind, list[_Given]]] = defaultdict(lambda: defaultdict(list))
    for one in given:
        by_node[one.node][one.holder[0]].append(one)
    for node, kinds in by_node.items():
        if node not in totals or node not in free_on:
            continue
        left = {
            name: amount - free_on[node].get(name, 0.0) for name, amount in totals[node].items()
        }
        for kind in _KINDS:
            held: dict[str, float] = defaultdict(float)
            for one in kinds[kind]:
                for name, amount in one.holds.items():
                    held[name] += amount
            sure = {name for name in held if held[name] <= left.get(name, 0.0) + _SLACK}
            for name in sure:
                left[name] -= held[name]
            for one in kinds[kind]:
                holds = {name: amount for name, amount in one.holds.items() if name in sure}
                if holds:
                    yield msgspec.structs.replace(one, holds=holds)


def _summed(given: Iterable[_Given]) -> tuple[ResourceHolder, ...]:
    counts: dict[tuple[HolderKind, str, str, str], int] = defaultdict(int)
    holds: dict[tuple[HolderKind, str, str, str], dict[str, float]] = defaultdict(dict)
    for one in given:
        counts[one.holder] += 1
        together = holds[one.holder]
        for name, amount in one.holds.items():
            together[name] = together.get(name, 0.0) + amount
    found = [
        ResourceHolder(
            kind=key[0],
            name=key[1],
            job=key[2],
            orphan=key[3],
            count=1 if key[0] == "placement group" else count,
            holds=holds[key],
        )
        for key, count in counts.items()
    ]
    return tuple(
        nsmallest(
            MOST_HOLDERS,
            found,
            key=lambda one: (not one.orphan, -max(one.holds.values()), one.job, one.name),
        )
    )

"""Drivers, actors, groups and calls, from the replies of Ray's control store.

Programs choose the names in them, and another version of Ray other states: names and lists are cut,
and what has an unknown state is left out. Calls: ``TaskEvents`` in ``gcs.proto``.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from ray_sentinel.actors.coordinator.ray.actors import job_name
from ray_sentinel.actors.names import NAMESPACE
from ray_sentinel.model.placement import PlacedGroup
from ray_sentinel.model.ray_calls import (
    CallKind,
    CallState,
    EndedCalls,
    PendingGroup,
    RayActor,
    RayCall,
    RayDriver,
)
from ray_sentinel.model.runtime_env import environment_key

MOST_CHANGES = 1000
"""Most seconds in which calls began or ended; of more, the last ones are kept."""
MOST_NAME = 200
"""Most characters of a name that somebody chose; the rest is cut off."""
MOST_ID = 32
"""Most bytes of an id; Ray's longest have 28."""
MOST_RESOURCES = 50
"""Most resources that one call or bundle requests, or that a node has; others are left out."""
MOST_BUNDLES = 1000
"""Most bundles of one placement group; others are left out."""
MOST_LABELS = 20
"""Most labels of one selector; others are left out."""
MAX_NODES = 2000
"""Most nodes of one answer that are passed on."""

RESTARTING = "RESTARTING"
"""The state of an actor that Ray starts again."""
_INTERNAL = "_ray_internal"
"""The beginning of the namespaces of Ray's own jobs."""
_KINDS: Mapping[str, CallKind] = {
    "DRIVER_TASK": "driver",
    "NORMAL_TASK": "task",
    "ACTOR_CREATION_TASK": "actor-creation",
    "ACTOR_TASK": "actor-task",
}
_STATES: Mapping[str, CallState] = {
    "PENDING_ARGS_AVAIL": "arguments",
    "PENDING_NODE_ASSIGNMENT": "unplaced",
    "PENDING_OBJ_STORE_MEM_AVAIL": "memory",
    "PENDING_ARGS_FETCH": "fetching",
    "GETTING_AND_PINNING_ARGS": "fetching",
    "SUBMITTED_TO_WORKER": "queued",
    "PENDING_ACTOR_TASK_ARGS_FETCH": "fetching",
    "PENDING_ACTOR_TASK_ORDERING_OR_CONCURRENCY": "queued",
    "RUNNING": "running",
    "RUNNING_IN_RAY_GET": "running",
    "RUNNING_IN_RAY_WAIT": "running",
}
_PENDING = ("PENDING", "RESCHEDULING")


def enum_name(message: Any, field: str) -> str:
    """The name of an enum's value; empty if this version of Ray has no name for it.

    ``Enum.Name`` would raise then, and one strange entry must not cost the others.
    """
    return _enum_names(message.DESCRIPTOR, field).get(getattr(message, field), "")


@functools.lru_cache(maxsize=64)
def _enum_names(descriptor: Any, field: str) -> dict[int, str]:
    values = descriptor.fields_by_name[field].enum_type.values_by_number
    return {number: value.name for number, value in values.items()}


def drivers_of(reply: Any) -> tuple[RayDriver, ...]:
    """The living drivers, from a ``GetAllJobInfoReply``."""
    return tuple(
        RayDriver(
            job=id_of(job.job_id),
            pid=job.driver_pid,
            address=cut(job.driver_ip_address),
            port=job.driver_address.port,
            command=cut(job.entrypoint),
            name=cut(job_name(job.entrypoint, id_of(job.job_id))),
            started=job.start_time / 1000 or None,
        )
        for job in reply.job_info_list
        if not job.is_dead and not is_internal(job.config.ray_namespace)
    )


def ended_drivers_of(reply: Any, jobs: Collection[str]) -> Iterator[RayDriver]:
    """The drivers of some jobs (Ray's ids, in hex) that have ended or are Ray's own, from a
    ``GetAllJobInfoReply``. The dashboard, which deploys applications of Ray Serve, is no name for
    what it deploys."""
    for job in reply.job_info_list:
        id_, internal = id_of(job.job_id), is_internal(job.config.ray_namespace)
        if id_ in jobs and (job.is_dead or internal):
            command = "" if internal else cut(job.entrypoint)
            started = job.start_time / 1000 or None
            yield RayDriver(
                job=id_,
                pid=0,
                address="",
                command=command,
                name=cut(job_name(command, id_)),
                started=started,
                ended=True,
            )


def actors_of(entries: Iterable[Any], made: Mapping[bytes, float]) -> Iterator[RayActor]:
    """The actors, from ``ActorTableData``; ``made`` is when they were requested, by
    ``creation_id``."""
    numbers: Counter[tuple[str, str]] = Counter()

    def order(entry: Any) -> tuple[float, bytes]:
        # An actor that is not started yet has no time of its own: it comes last.
        own = entry.start_time / 1000 or float("inf")
        return made.get(creation_id(entry.actor_id), own), entry.actor_id

    for entry in sorted(entries, key=order):
        kind = class_name(entry)
        key = (id_of(entry.job_id), kind)
        state = enum_name(entry, "state")
        again = state == RESTARTING
        yield RayActor(
            id=id_of(entry.actor_id),
            job=key[0],
            kind=kind,
            name=cut(entry.name),
            number=numbers[key],
            state=state,
            node=id_of(entry.address.node_id),
            pid=0 if again else entry.pid,  # that of the process that has ended
            port=entry.address.port,
            owner=owner_of(entry),
            worker=id_of(entry.address.worker_id) if again else "",
        )
        numbers[key] += 1


def class_name(entry: Any) -> str:
    """The class in an ``ActorTableData``, without the function in which it was defined."""
    return cut(entry.class_name.rpartition("<locals>.")[2])


def owner_of(entry: Any) -> str:
    """The address of the process that created an actor, from an ``ActorTableData``."""
    return f"{cut(entry.owner_address.ip_address)}:{entry.owner_address.port}"


def made_at(reply: Any) -> Iterator[tuple[bytes, float]]:
    """The ids of calls and when they were submitted, from a ``GetTaskEventsReply``."""
    for event in reply.events_by_task:
        if times := event.state_updates.state_ts_ns.values():
            yield event.task_id[:MOST_ID], min(times) / 1e9


def made_in(reply: Any, job: str) -> Iterator[Any]:
    """The calls in a ``GetTaskEventsReply`` that were made in a job (Ray's id, in hex): the id of
    any call ends with that of the job that it is filed under (``TaskID::JobId``)."""
    id_ = bytes.fromhex(job)
    return (one for one in reply.events_by_task if one.task_info.parent_task_id.endswith(id_))


def groups_of(reply: Any) -> tuple[PendingGroup, ...]:
    """The groups that are not placed, from a ``GetAllPlacementGroupReply``."""
    return tuple(
        PendingGroup(
            id=id_of(group.placement_group_id),
            name=cut(group.name),
            job=id_of(group.creator_job_id),
            bundles=tuple(
                amounts(bundle.unit_resources) for bundle in islice(group.bundles, MOST_BUNDLES)
            ),
            selectors=tuple(
                selector_of(bundle.label_selector)
                for bundle in islice(group.bundles, MOST_BUNDLES)
                if bundle.label_selector
            ),
            strategy=enum_name(group, "strategy"),
            infeasible=enum_name(group.stats, "scheduling_state") == "INFEASIBLE",
            since=group.placement_group_creation_timestamp_ms / 1000 or None,
        )
        for group in reply.placement_group_table_data
        if enum_name(group, "state") in _PENDING and not is_internal(group.ray_namespace)
    )


def placed_of(reply: Any, wanted: Collection[str]) -> Iterator[PlacedGroup]:
    """The placed groups with these ids, from a ``GetAllPlacementGroupReply``."""
    for group in reply.placement_group_table_data:
        id_ = id_of(group.placement_group_id)
        if id_ in wanted and enum_name(group, "state") == "CREATED":
            bundles = islice(group.bundles, MOST_BUNDLES)
            yield PlacedGroup(
                id=id_,
                name=cut(group.name),
                bundles=tuple(amounts(bundle.unit_resources) for bundle in bundles),
            )


def labels_of(reply: Any, keys: Collection[str]) -> dict[str, dict[str, str]]:
    """Some of the labels of the living nodes, by node id, from a ``GetAllNodeInfoReply``."""
    return {
        id_of(node.node_id): {key: cut(node.labels[key]) for key in keys if key in node.labels}
        for node in reply.node_info_list[:MAX_NODES]
        if enum_name(node, "state") == "ALIVE"
    }


def selector_of(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels that a node must have."""
    return {cut(key): cut(value) for key, value in islice(labels.items(), MOST_LABELS)}


def _selectors(info: Any) -> Iterator[dict[str, str]]:
    """The selectors in a ``TaskInfoEntry``: the call's own, and the alternatives to it."""
    if not info.label_selector:
        return
    yield selector_of(info.label_selector)
    for option in info.fallback_strategy.options[:MOST_LABELS]:
        found = {}
        for one in option.label_selector.label_constraints[:MOST_LABELS]:
            values = ",".join(islice(one.label_values, MOST_LABELS))
            unlike = "!" if enum_name(one, "operator") == "LABEL_OPERATOR_NOT_IN" else ""
            found[one.label_key] = f"{unlike}in({values})"
        yield selector_of(found)


def free_of(reply: Any) -> dict[str, dict[str, float]]:
    """What nobody uses, by node id, from a ``GetAllAvailableResourcesReply``."""
    return {
        id_of(node.node_id): amounts(
            {name: amount for name, amount in node.resources_available.items() if plain(name)}
        )
        for node in reply.resources_list[:MAX_NODES]
    }


def plain(resource: str) -> bool:
    """Whether a resource is of use to others, not one that Ray creates for itself: by which it
    addresses a node, or a placement group's copy.

    >>> plain("GPU"), plain("node:10.0.0.1"), plain("GPU_group_0_29a1"), plain("bundle_group_ab")
    (True, False, False, False)
    """
    return not resource.startswith("node:") and "_group_" not in resource


def metrics_urls(reply: Any, nodes: Collection[str]) -> dict[str, str]:
    """Where some nodes serve Ray's metrics, by node id, from a ``GetAllNodeInfoReply``."""
    found = ((id_of(one.node_id), one) for one in reply.node_info_list)
    return {
        node: f"http://{one.node_manager_address}:{one.metrics_export_port}/metrics"
        for node, one in found
        if node in nodes and one.metrics_export_port > 0
    }


def amounts(resources: Mapping[str, float]) -> dict[str, float]:
    """Amounts by resource. The names were chosen by others, and are cut off if long."""
    return {cut(name): float(amount) for name, amount in islice(resources.items(), MOST_RESOURCES)}


def calls_of(reply: Any) -> tuple[RayCall, ...]:
    """The newest attempts of calls that have not ended, from a ``GetTaskEventsReply``."""
    statuses = _statuses()
    newest: dict[str, tuple[int, RayCall]] = {}
    for event in reply.events_by_task:
        if call := _call(event, statuses):
            known = newest.get(call.id)
            if known is None or known[0] <= event.attempt_number:
                newest[call.id] = event.attempt_number, call
    return tuple(call for _, call in newest.values())


def _status_numbers() -> dict[str, int]:
    return {name: number for number, name in _statuses().items()}


def _statuses() -> dict[int, str]:
    from ray.core.generated import common_pb2

    return {number: name for name, number in common_pb2.TaskStatus.items()}


def _call(event: Any, statuses: Mapping[int, str]) -> RayCall | None:
    """The call; None if it has ended, or its kind or state is not known."""
    info, update = event.task_info, event.state_updates
    kind = _KINDS.get(enum_name(info, "type"))
    times = update.state_ts_ns
    if kind is None or not times:
        return None
    last = max(times, key=lambda status: (times[status], status))
    state = _STATES.get(statuses.get(last, ""))
    if state is None:
        return None
    return RayCall(
        id=id_of(event.task_id),
        parent=id_of(info.parent_task_id),
        job=id_of(event.job_id),
        kind=kind,
        name=cut(info.name or info.func_or_class_name),
        actor=id_of(info.actor_id),
        state=state,
        since=times[last] / 1e9,
        made=min(times.values()) / 1e9,
        node=id_of(update.node_id),
        pid=update.worker_pid,
        worker="" if update.worker_pid else id_of(update.worker_id),
        needs=amounts(info.required_resources),
        selectors=tuple(_selectors(info)),
        environment=environment_key(info.runtime_env_info.serialized_runtime_env),
    )


def ended_of(reply: Any) -> dict[str, EndedCalls]:
    """The calls that have ended successfully, by name, from a ``GetTaskEventsReply``."""
    found: dict[str, EndedCalls] = {}
    for name, begin, end, _ in times_of(reply):
        old = found.get(name, EndedCalls(count=0, longest=0.0))
        found[name] = EndedCalls(
            count=old.count + 1,
            longest=max(old.longest, end - begin),
            last_at=max(old.last_at, end),
        )
    return found


def times_of(reply: Any) -> Iterator[tuple[str, float, float, Any]]:
    """The name, begin and end (Unix seconds) and ``TaskInfoEntry`` of each call that has ended
    successfully, from a ``GetTaskEventsReply``."""
    numbers = _status_numbers()
    running, ended = numbers["RUNNING"], numbers["FINISHED"]
    for event in reply.events_by_task:
        times, info = event.state_updates.state_ts_ns, event.task_info
        name = cut(info.name or info.func_or_class_name)
        if running in times and ended in times and name:
            end = times[ended] / 1e9
            yield name, min(times[running] / 1e9, end), end, info


def changes_of(reply: Any) -> tuple[int, ...]:
    """The last whole Unix seconds in which any of those calls began or ended."""
    numbers = _status_numbers()
    told = {
        event.state_updates.state_ts_ns[numbers[state]] // 10**9
        for event in reply.events_by_task
        for state in ("RUNNING", "FINISHED")
        if numbers[state] in event.state_updates.state_ts_ns
    }
    return tuple(sorted(told)[-MOST_CHANGES:])


def creation_id(actor: bytes) -> bytes:
    """The id of the call that makes an actor (``TaskID::ForActorCreationTask``)."""
    return 8 * b"\xff" + actor


def is_internal(namespace: str) -> bool:
    """Whether a job is Ray's own, or ours."""
    return namespace == NAMESPACE or namespace.startswith(_INTERNAL)


def id_of(raw: bytes) -> str:
    """An id of Ray's in hex."""
    return raw[:MOST_ID].hex()


def cut(text: str) -> str:
    """A name that somebody chose, cut off if long."""
    return text[:MOST_NAME]

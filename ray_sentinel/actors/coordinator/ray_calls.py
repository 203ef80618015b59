"""The unfinished calls of Ray's jobs, asked of its control store by gRPC: no dashboard is needed.

Messages: ``gcs_service.proto``, ``gcs.proto`` and ``common.proto`` of Ray. Workers tell the store
their calls about once a second, and it forgets the oldest: what it does not list may yet be.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from ray_sentinel.actors.coordinator.ray_actors import job_name
from ray_sentinel.actors.names import NAMESPACE
from ray_sentinel.model.ray_calls import (
    CallKind,
    CallState,
    EndedCalls,
    PendingGroup,
    RayActor,
    RayCall,
    RayCalls,
    RayDriver,
)

ANSWER_SECONDS = 5.0
"""For each answer of the store."""
MOST_CALLS = 10_000
MOST_ACTORS = 10_000
MOST_CLASSES = 50
"""Whose actors are numbered in the order in which they were asked for; beyond that, of starts."""
MOST_BYTES = 64 << 20
"""Of one answer."""
MOST_NAME = 200
"""Characters of a name that somebody chose."""
_LIVING = ("ALIVE", "PENDING_CREATION", "DEPENDENCIES_UNREADY", "RESTARTING")
_INTERNAL = "_ray_internal"
"""Begins the namespaces of Ray's own jobs."""
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
_ENDED = ("FINISHED", "FAILED")
_NODES_OWN = "node:"
"""How the resources begin by which Ray addresses a node; those of a placed group are of no use to
others either."""
MAX_NODES = 2000
"""Of which is told what they have free."""


def unfinished_calls(
    address: str, job: str = "", *, times: bool = False, wall: Callable[[], float] = time.time
) -> RayCalls:
    """What the control store at ``address`` (HOST:PORT) knows now; the calls are those of one job
    where ``job`` (Ray's id, in hex) is given. ``times``: also how long ended calls took.

    A part that it does not answer, or that this version of Ray does not have, is named in
    ``problem`` and left out.
    """
    try:
        store = ControlStoreCalls(address)
    except NO_STORE as error:
        return RayCalls(at=wall(), problem=f"Ray's control store cannot be asked: {error}")
    with store:
        return store.look(wall(), job, times=times)


NO_STORE = (ImportError, AttributeError, RuntimeError, ValueError)
"""What ``ControlStoreCalls`` raises where this version of Ray has no such store."""


class ControlStoreCalls:
    """The store's services on one channel. Used by one thread, and closed at the end."""

    def __init__(self, address: str) -> None:
        import grpc  # type: ignore[import-untyped]
        from ray._private.grpc_utils import init_grpc_channel
        from ray.core.generated import common_pb2, gcs_pb2, gcs_service_pb2, gcs_service_pb2_grpc

        self._common, self._gcs, self._service = common_pb2, gcs_pb2, gcs_service_pb2
        self._stubs = gcs_service_pb2_grpc
        self._refused = grpc.RpcError
        limit = (("grpc.max_receive_message_length", MOST_BYTES),)
        self._channel: Any = init_grpc_channel(address, options=limit)
        self._problems: list[str] = []
        self._made_at: dict[bytes, float] = {}
        """When actors were asked for, by the id of their creation: that does not change."""
        self._known = RayCalls()

    def __enter__(self) -> ControlStoreCalls:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()

    def table(self, at: float) -> RayCalls:
        """The drivers, the living actors and the groups that are not placed; no calls. ``at`` is
        Unix time. Of a part that is not told what was told before stays, named in ``problem``."""
        self._problems.clear()
        old = self._known
        drivers = self._asked("jobs", self._drivers, old.drivers)
        known = {driver.job for driver in drivers}
        actors = self._asked("actors", self._actors, old.actors) if drivers else ()
        groups = self._asked("placement groups", self._groups, old.groups) if drivers else ()
        self._known = RayCalls(
            at=at,
            drivers=drivers,
            actors=tuple(actor for actor in actors if actor.job in known),
            groups=groups,
            problem="; ".join(self._problems),
        )
        return self._known

    def look(self, at: float, job: str = "", *, times: bool = False) -> RayCalls:
        """The same with the calls that have not ended, of all jobs or one, and what is free;
        with ``times`` also how long those took that have ended well."""
        table = self.table(at)
        known = {driver.job for driver in table.drivers}
        living = {actor.id for actor in table.actors}
        calls, left_off = self._asked("calls", lambda: self._calls(job), ((), 0))
        free_on = self._asked("free resources", self._free, {})
        return msgspec.structs.replace(
            table,
            calls=tuple(
                call
                for call in calls
                if call.job in known and (call.kind != "actor-task" or call.actor in living)
            ),
            free_on=free_on,
            ended=self._asked("ended calls", lambda: self._ended(job), {}) if times else {},
            left_off=left_off,
            problem="; ".join(self._problems),
        )

    def _free(self) -> dict[str, dict[str, float]]:
        stub = self._stubs.NodeResourceInfoGcsServiceStub(self._channel)
        request = self._service.GetAllAvailableResourcesRequest()
        reply = stub.GetAllAvailableResources(request, timeout=ANSWER_SECONDS)
        return {
            node.node_id.hex(): {
                _cut(name): amount
                for name, amount in node.resources_available.items()
                if not name.startswith(_NODES_OWN) and "_group_" not in name
            }
            for node in reply.resources_list[:MAX_NODES]
        }

    def _asked(self, what: str, ask: Callable[[], Any], nothing: Any) -> Any:
        try:
            return ask()
        except (self._refused, AttributeError, TypeError, ValueError) as error:
            text = (str(error).splitlines() or [""])[0]
            self._problems.append(f"Ray's control store does not tell its {what}: {text}")
            return nothing

    def _drivers(self) -> tuple[RayDriver, ...]:
        stub = self._stubs.JobInfoGcsServiceStub(self._channel)
        reply = stub.GetAllJobInfo(self._service.GetAllJobInfoRequest(), timeout=ANSWER_SECONDS)
        return tuple(
            RayDriver(
                job=job.job_id.hex(),
                pid=job.driver_pid,
                address=job.driver_ip_address,
                command=_cut(job.entrypoint),
                name=job_name(job.entrypoint, job.job_id.hex()),
                started=job.start_time / 1000 or None,
            )
            for job in reply.job_info_list
            if not job.is_dead and not _is_internal(job.config.ray_namespace)
        )

    def _actors(self) -> tuple[RayActor, ...]:
        stub = self._stubs.ActorInfoGcsServiceStub(self._channel)
        request = self._service.GetAllActorInfoRequest
        found: list[Any] = []
        for state in _LIVING:
            filters = request.Filters(state=self._gcs.ActorTableData.ActorState.Value(state))
            reply = stub.GetAllActorInfo(
                request(limit=MOST_ACTORS, filters=filters), timeout=ANSWER_SECONDS
            )
            found += reply.actor_table_data
        return tuple(self._numbered(found))

    def _numbered(self, entries: Iterable[Any]) -> Iterator[RayActor]:
        numbers: Counter[tuple[str, str]] = Counter()
        entries = [entry for entry in entries if not _is_internal(entry.ray_namespace)]
        made = self._made(entries)

        def order(entry: Any) -> tuple[float, bytes]:
            # An actor that is not started yet has no time of its own: it comes last.
            own = entry.start_time / 1000 or float("inf")
            return made.get(creation_id(entry.actor_id), own), entry.actor_id

        for entry in sorted(entries, key=order):
            key = (entry.job_id.hex(), entry.class_name)
            yield RayActor(
                id=entry.actor_id.hex(),
                job=key[0],
                kind=_cut(entry.class_name.rpartition("<locals>.")[2]),
                name=_cut(entry.name),
                number=numbers[key],
                state=self._gcs.ActorTableData.ActorState.Name(entry.state),
                node=entry.address.node_id.hex(),
                pid=entry.pid,
                owner=f"{entry.owner_address.ip_address}:{entry.owner_address.port}",
            )
            numbers[key] += 1

    def _made(self, entries: Iterable[Any]) -> dict[bytes, float]:
        """When actors with fellows of their class were asked for, by the id of their creation:
        their programs number them in this order."""
        there = {creation_id(entry.actor_id): entry for entry in entries}
        self._made_at = {key: at for key, at in self._made_at.items() if key in there}
        classes = Counter(entry.class_name for entry in entries if not entry.name)
        new = {entry.class_name for key, entry in there.items() if key not in self._made_at}
        several = [
            name for name, count in classes.most_common(MOST_CLASSES) if count > 1 and name in new
        ]
        filters = self._service.GetTaskEventsRequest.Filters
        equal = self._service.FilterPredicate.Value("EQUAL")
        stub = self._stubs.TaskInfoGcsServiceStub(self._channel)
        for name in several:
            # Several filters of one kind must all be met: each class is asked for alone.
            wanted = filters.TaskNameFilter(predicate=equal, task_name=f"{name}.__init__")
            reply = stub.GetTaskEvents(
                self._service.GetTaskEventsRequest(
                    limit=MOST_ACTORS, filters=filters(task_name_filters=[wanted])
                ),
                timeout=ANSWER_SECONDS,
            )
            for event in reply.events_by_task:
                if times := event.state_updates.state_ts_ns.values():
                    self._made_at[event.task_id] = min(times) / 1e9
        return self._made_at

    def _ended(self, job: str) -> dict[str, EndedCalls]:
        filters = self._service.GetTaskEventsRequest.Filters
        equal = self._service.FilterPredicate.Value("EQUAL")
        finished = filters.StateFilter(predicate=equal, state="FINISHED")
        of_job = filters.JobIdFilter(predicate=equal, job_id=bytes.fromhex(job)) if job else None
        reply = self._stubs.TaskInfoGcsServiceStub(self._channel).GetTaskEvents(
            self._service.GetTaskEventsRequest(
                limit=MOST_CALLS,
                filters=filters(state_filters=[finished], job_filters=[of_job] if of_job else []),
            ),
            timeout=ANSWER_SECONDS,
        )
        status = self._common.TaskStatus.Value
        running, ended = status("RUNNING"), status("FINISHED")
        found: dict[str, EndedCalls] = {}
        for event in reply.events_by_task:
            times = event.state_updates.state_ts_ns
            name = _cut(event.task_info.name or event.task_info.func_or_class_name)
            if running in times and ended in times and name:
                seconds = max(0.0, (times[ended] - times[running]) / 1e9)
                old = found.get(name, EndedCalls(count=0, longest=0.0))
                found[name] = EndedCalls(count=old.count + 1, longest=max(old.longest, seconds))
        return found

    def _calls(self, job: str) -> tuple[tuple[RayCall, ...], int]:
        filters = self._service.GetTaskEventsRequest.Filters
        not_equal = self._service.FilterPredicate.Value("NOT_EQUAL")
        wanted = [filters.StateFilter(predicate=not_equal, state=state) for state in _ENDED]
        equal = self._service.FilterPredicate.Value("EQUAL")
        of_job = filters.JobIdFilter(predicate=equal, job_id=bytes.fromhex(job)) if job else None
        reply = self._stubs.TaskInfoGcsServiceStub(self._channel).GetTaskEvents(
            self._service.GetTaskEventsRequest(
                limit=MOST_CALLS,
                filters=filters(state_filters=wanted, job_filters=[of_job] if of_job else []),
            ),
            timeout=ANSWER_SECONDS,
        )
        newest: dict[str, tuple[int, RayCall]] = {}
        for event in reply.events_by_task:
            if call := self._call(event):
                known = newest.get(call.id)
                if known is None or known[0] <= event.attempt_number:
                    newest[call.id] = event.attempt_number, call
        return tuple(call for _, call in newest.values()), reply.num_truncated

    def _call(self, event: Any) -> RayCall | None:
        """None for what has ended, or is of a kind or in a state that is not known."""
        info, update = event.task_info, event.state_updates
        kind = _KINDS.get(self._common.TaskType.Name(info.type))
        times = update.state_ts_ns
        if kind is None or not times:
            return None
        last = max(times, key=lambda status: (times[status], status))
        state = _STATES.get(self._common.TaskStatus.Name(last))
        if state is None:
            return None
        return RayCall(
            id=event.task_id.hex(),
            parent=info.parent_task_id.hex(),
            job=event.job_id.hex(),
            kind=kind,
            name=_cut(info.name or info.func_or_class_name),
            actor=info.actor_id.hex(),
            state=state,
            since=times[last] / 1e9,
            made=min(times.values()) / 1e9,
            node=update.node_id.hex(),
            pid=update.worker_pid,
            needs={name: float(amount) for name, amount in info.required_resources.items()},
        )

    def _groups(self) -> tuple[PendingGroup, ...]:
        stub = self._stubs.PlacementGroupInfoGcsServiceStub(self._channel)
        request = self._service.GetAllPlacementGroupRequest()
        reply = stub.GetAllPlacementGroup(request, timeout=ANSWER_SECONDS)
        states = self._gcs.PlacementGroupTableData.PlacementGroupState
        pending = (states.Value("PENDING"), states.Value("RESCHEDULING"))
        infeasible = self._gcs.PlacementGroupStats.SchedulingState.Value("INFEASIBLE")
        return tuple(
            PendingGroup(
                id=group.placement_group_id.hex(),
                name=_cut(group.name),
                job=group.creator_job_id.hex(),
                bundles=tuple(dict(bundle.unit_resources) for bundle in group.bundles),
                infeasible=group.stats.scheduling_state == infeasible,
                since=group.placement_group_creation_timestamp_ms / 1000 or None,
            )
            for group in reply.placement_group_table_data
            if group.state in pending and not _is_internal(group.ray_namespace)
        )


def creation_id(actor: bytes) -> bytes:
    """The id of the call that makes an actor (``TaskID::ForActorCreationTask``)."""
    return 8 * b"\xff" + actor


def _is_internal(namespace: str) -> bool:
    """Ray's own jobs, and ours."""
    return namespace == NAMESPACE or namespace.startswith(_INTERNAL)


def _cut(text: str) -> str:
    return text[:MOST_NAME]

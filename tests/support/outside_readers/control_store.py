"""Readers of the replies of Ray's control store: protocol buffers, with names that programs chose.

Entries of one list stand one behind the other in them, so a reply may be filled with one again and
again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError
from ray.core.generated import autoscaler_pb2, common_pb2, gcs_pb2, gcs_service_pb2

from ray_sentinel.actors.coordinator.ray import deaths as ray_deaths
from ray_sentinel.actors.coordinator.ray import failed_calls
from ray_sentinel.actors.coordinator.ray import replies as ray_replies
from ray_sentinel.actors.coordinator.ray.autoscaler import cluster_status_of, status_of
from ray_sentinel.actors.coordinator.ray.holders import Held, placement_of
from ray_sentinel.model.ray_calls import RayActor, RayDriver
from tests.support.outside_readers.reader import Reader

ACTOR = RayActor(id="11" * 16, job="01000000", kind="Rollout", pid=77)
DRIVER = RayDriver(job="01000000", pid=10, address="10.0.0.1")
STATUS = common_pb2.TaskStatus.Value
TRACEBACK = b'Traceback (most recent call last):\n  File "rl.py", line 7, in f\n    raise E(1)\n'
WORDS = (
    b"train.py",
    b"raise ValueError(1)",
    b'  File "rl.py", line 7, in f\n',
    b"Worker exit type: SYSTEM_ERROR Worker exit detail: ",
    b"Owner Id: ab12 ",
    b"exit code 3.",
)


def _actor(entry: Any) -> object:
    # Every cause of death that a real one may have.
    return ray_deaths.actor_death(entry, ACTOR, "ab" * 28)


def _driver(job: Any) -> object:
    worker = gcs_pb2.WorkerTableData(worker_info={"exception": job.entrypoint.encode()})
    return ray_deaths.driver_death(job, worker, DRIVER)


def _failure(reply: Any) -> object:
    failed = failed_calls.failures(reply, 2e9)
    failed_calls.may_show_lost_worker(WORDS[1].decode(), failed)
    return [failed_calls.failed_call(one, DRIVER) for one in failed]


def _ended_workers(reply: Any) -> object:
    ended = failed_calls.ended_workers(reply, b"\1\0\0\0", 2e9)
    return [failed_calls.lost_worker(one, None, DRIVER) for one in ended]


def _last_calls(reply: Any) -> object:
    last = failed_calls.LastCalls(reply.events_by_task)
    worker = gcs_pb2.WorkerTableData(worker_address={"worker_id": b"w" * 28})
    return last.when_it_ended(worker), last.may_have_run(worker)


def _events(*states: str) -> gcs_service_pb2.GetTaskEventsReply:
    """Calls of all kinds in these states, some of which contradict each other."""
    reply = gcs_service_pb2.GetTaskEventsReply(num_truncated=3)
    for number, kind in enumerate(common_pb2.TaskType.keys()):
        for state in states:
            event = reply.events_by_task.add(
                task_id=bytes([number]) * 24, job_id=b"\1\0\0\0", attempt_number=number % 2
            )
            event.task_info.type = kind
            event.task_info.name = f"Rollout.generate{number}"
            event.task_info.required_resources["GPU"] = 1.0
            event.state_updates.worker_pid = 77
            event.state_updates.worker_id = b"w" * 28
            for at, status in enumerate(("RUNNING", state, "FINISHED")[: 2 + number % 2]):
                event.state_updates.state_ts_ns[STATUS(status)] = 10**18 + at * 10**9 // 2
            if state == "FAILED":
                event.state_updates.error_info.error_type = "TASK_EXECUTION_EXCEPTION"
                event.state_updates.error_info.error_message = TRACEBACK.decode()
    return reply


def _actors() -> list[gcs_pb2.ActorTableData]:
    said = "Worker exit type: SYSTEM_ERROR Worker exit detail: exit code 3. Owner Id: ab12 "
    died = common_pb2.ActorDiedErrorContext(error_message=said, reason="WORKER_DIED")
    raised = common_pb2.RayException(formatted_exception_string=TRACEBACK.decode())
    causes = [
        common_pb2.ActorDeathCause(actor_died_error_context=died),
        common_pb2.ActorDeathCause(creation_task_failure_context=raised),
        common_pb2.ActorDeathCause(oom_context={"error_message": said}),
        common_pb2.ActorDeathCause(runtime_env_failed_context={"error_message": said}),
    ]
    return [
        gcs_pb2.ActorTableData(
            actor_id=bytes([number]) * 16,
            job_id=b"\1\0\0\0",
            class_name="f.<locals>.Rollout",
            name=f"a-{number}",
            pid=number,
            state=number % 5,
            end_time=5000,
            start_time=1000,
            death_cause=cause,
        )
        for number, cause in enumerate(causes)
    ]


def _jobs() -> list[gcs_pb2.JobTableData]:
    entrypoint = f"env A=b python -u -X dev train.py\n{TRACEBACK.decode()}"
    return [
        gcs_pb2.JobTableData(
            job_id=bytes([number, 0, 0, 0]),
            entrypoint=entrypoint,
            driver_ip_address="10.0.0.1",
            is_dead=bool(number),
            end_time=5000,
        )
        for number in (0, 1)
    ]


def _workers() -> gcs_service_pb2.GetAllWorkerInfoReply:
    reply = gcs_service_pb2.GetAllWorkerInfoReply()
    for kind in common_pb2.WorkerExitType.values():
        reply.worker_table_data.add(
            worker_address={"worker_id": b"w" * 28, "ip_address": "10.0.0.1"},
            exit_type=kind,
            exit_detail="Worker exits with an exit code 3. The process receives a SIGTERM.",
            end_time_ms=10**12,
        )
    return reply


def _group() -> gcs_pb2.PlacementGroupTableData:
    group = gcs_pb2.PlacementGroupTableData(name="pg", state="PENDING")
    group.bundles.add().unit_resources["GPU"] = 8.0
    group.stats.scheduling_state = "INFEASIBLE"
    return group


def _free() -> gcs_service_pb2.GetAllAvailableResourcesReply:
    reply = gcs_service_pb2.GetAllAvailableResourcesReply()
    for name in ("GPU", "CPU", "node:10.0.0.1"):
        reply.resources_list.add(node_id=b"a" * 28).resources_available[name] = 1.0
    return reply


def _totals() -> gcs_service_pb2.GetAllTotalResourcesReply:
    reply = gcs_service_pb2.GetAllTotalResourcesReply()
    reply.resources_list.add(node_id=b"a" * 28).resources_total["GPU"] = 1.0
    return reply


def _cluster_status() -> autoscaler_pb2.GetClusterStatusReply:
    reply = autoscaler_pb2.GetClusterStatusReply()
    state = reply.autoscaling_state
    state.pending_instance_requests.add(count=2)
    state.failed_instance_requests.add(count=1, reason="no capacity", failed_ts=5)
    state.infeasible_resource_requests.add().resources_bundle["GPU"] = 8.0
    state.infeasible_gang_resource_requests.add().requests.add().resources_bundle["CPU"] = 8.0
    reply.cluster_resource_state.node_states.add(node_id=b"a" * 28, ray_node_type_name="head")
    return reply


def _reader(
    name: str, kind: Any, read: Callable[[Any], object], *samples: Any, most: int = 256 << 10
) -> Reader:
    whole = [sample.SerializeToString() for sample in samples]
    return Reader(
        name=f"control store: {name}",
        read=lambda data: read(kind.FromString(data)),
        errors=(DecodeError,),
        words=(*whole[:1], *WORDS),
        made=lambda: whole,
        most=most,
    )


_ACTORS = gcs_service_pb2.GetAllActorInfoReply
_EVENTS = gcs_service_pb2.GetTaskEventsReply
_WORKERS = gcs_service_pb2.GetAllWorkerInfoReply

CONTROL_STORE: tuple[Reader, ...] = (
    _reader(
        "drivers",
        gcs_service_pb2.GetAllJobInfoReply,
        ray_replies.drivers_of,
        gcs_service_pb2.GetAllJobInfoReply(job_info_list=_jobs()),
    ),
    _reader(
        "actors",
        _ACTORS,
        lambda reply: list(ray_replies.actors_of(reply.actor_table_data, {})),
        _ACTORS(actor_table_data=_actors()),
    ),
    _reader(
        "placement groups",
        gcs_service_pb2.GetAllPlacementGroupReply,
        ray_replies.groups_of,
        gcs_service_pb2.GetAllPlacementGroupReply(placement_group_table_data=[_group()]),
    ),
    _reader(
        "groups that are placed",
        gcs_service_pb2.GetAllPlacementGroupReply,
        lambda reply: list(ray_replies.placed_of(reply, {""})),
        gcs_service_pb2.GetAllPlacementGroupReply(
            placement_group_table_data=[gcs_pb2.PlacementGroupTableData(name="a", state="CREATED")]
        ),
    ),
    _reader(
        "labels of nodes",
        gcs_service_pb2.GetAllNodeInfoReply,
        lambda reply: ray_replies.labels_of(reply, {"kind"}),
        gcs_service_pb2.GetAllNodeInfoReply(
            node_info_list=[gcs_pb2.GcsNodeInfo(node_id=b"a" * 28, labels={"kind": "h100"})]
        ),
    ),
    _reader(
        "free resources",
        gcs_service_pb2.GetAllAvailableResourcesReply,
        ray_replies.free_of,
        _free(),
    ),
    _reader(
        "who holds resources: placed groups and jobs",
        gcs_service_pb2.GetAllPlacementGroupReply,
        lambda reply: placement_of(Held(groups=reply), {}),
        gcs_service_pb2.GetAllPlacementGroupReply(placement_group_table_data=[_group()]),
    ),
    _reader(
        "who holds resources: running calls",
        _EVENTS,
        lambda reply: placement_of(Held(running=reply), {}),
        _events("RUNNING"),
    ),
    _reader(
        "who holds resources: totals",
        gcs_service_pb2.GetAllTotalResourcesReply,
        lambda reply: placement_of(Held(totals=reply), {}),
        _totals(),
    ),
    Reader(
        name="control store: the autoscaler's status",
        read=status_of,
        errors=(),
        words=(b"autoscaler_report", b"node_type_mapping", *WORDS),
        made=lambda: [b'{"autoscaler_report": {"node_type_mapping": {"ab": "node_ab"}}}'],
        most=256 << 10,
    ),
    _reader(
        "the autoscaler's status, version 2",
        autoscaler_pb2.GetClusterStatusReply,
        cluster_status_of,
        _cluster_status(),
    ),
    _reader(
        "calls",
        _EVENTS,
        lambda reply: (ray_replies.calls_of(reply), dict(ray_replies.made_at(reply))),
        _events("RUNNING", "SUBMITTED_TO_WORKER", "PENDING_NODE_ASSIGNMENT"),
    ),
    _reader(
        "ended calls",
        _EVENTS,
        lambda reply: (ray_replies.ended_of(reply), ray_replies.changes_of(reply)),
        _events("FINISHED"),
    ),
    _reader("failed calls", _EVENTS, _failure, _events("FAILED")),
    _reader("the last calls of workers", _EVENTS, _last_calls, _events("FAILED", "RUNNING")),
    _reader("ended workers", _WORKERS, _ended_workers, _workers()),
    _reader("a dead actor", gcs_pb2.ActorTableData, _actor, *_actors()),
    _reader("a dead driver", gcs_pb2.JobTableData, _driver, *_jobs()),
)

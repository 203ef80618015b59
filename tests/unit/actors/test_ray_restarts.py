"""An actor that Ray starts again: its creation is listed once, and has ended."""

from __future__ import annotations

from typing import Any

import pytest
from ray.core.generated import common_pb2, gcs_pb2, gcs_service_pb2

from ray_sentinel.actors.coordinator.ray.calls import ControlStoreCalls
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.waitgraph.job_processes import creation_id
from ray_sentinel.waitgraph.picture import picture
from ray_sentinel.waitgraph.ray_calls import RayFacts
from tests.support.ray_replies import Replies

JOB, NODE, WORKER = bytes([2, 0, 0, 0]), bytes([9]) * 28, bytes([8]) * 28
ACTOR = bytes([1]) * 12 + JOB


def store(new_pid: int) -> ControlStoreCalls:
    """A driver (pid 1) waits for a call of an actor whose process (pid 70) has ended; Ray has given
    it a worker with ``new_pid``, or none."""

    def actors(filters: dict[str, str], **_: object) -> Any:
        again = gcs_pb2.ActorTableData(
            actor_id=ACTOR, job_id=JOB, class_name="Flaky", pid=70, state="RESTARTING",
            address=common_pb2.Address(node_id=NODE, worker_id=WORKER if new_pid else b""),
        )  # fmt: skip
        found = [again] if filters == {"state": "RESTARTING"} else []
        return gcs_service_pb2.GetAllActorInfoReply(actor_table_data=found)

    events = gcs_service_pb2.GetTaskEventsReply()
    status = common_pb2.TaskStatus.Value
    for id_, parent, kind, name, state, pid in (
        (b"\x07", b"", "DRIVER_TASK", "", "RUNNING", 1),
        (b"\x05", b"\x07", "ACTOR_TASK", "Flaky.work", "PENDING_NODE_ASSIGNMENT", 0),
    ):
        event = events.events_by_task.add(task_id=id_ * 20 + JOB, job_id=JOB)
        event.task_info.type, event.task_info.name = kind, name
        event.task_info.parent_task_id = parent * 20 + JOB if parent else b""
        event.task_info.actor_id = ACTOR if kind == "ACTOR_TASK" else b""
        event.state_updates.state_ts_ns[status(state)] = 100 * 10**9
        event.state_updates.worker_pid = pid
    return ControlStoreCalls(
        Replies(
            GetAllJobInfo=gcs_service_pb2.GetAllJobInfoReply(
                job_info_list=[
                    gcs_pb2.JobTableData(job_id=JOB, driver_pid=1, driver_ip_address="10.0.0.1")
                ]
            ),
            GetAllActorInfo=actors,
            GetTaskEvents=events,
            GetWorkerInfo=gcs_service_pb2.GetWorkerInfoReply(
                worker_table_data=gcs_pb2.WorkerTableData(pid=new_pid)
            ),
        )
    )


def place(function: str, activity: Any) -> Any:
    return {"signature": (function,), "activity": activity, "waits_for_others": False}


@pytest.mark.parametrize("new_pid", [71, 0])
def test_who_waits_for_its_calls_waits_for_its_constructor(new_pid: int) -> None:
    calls = store(new_pid).fetch(110.0, JOB.hex())
    (actor,) = calls.actors
    assert actor.pid == new_pid
    main, again = ProcessId("host1", 1), ProcessId("host1", new_pid)
    facts = [
        StackFact(process=main, **place("get (ray/_private/worker.py:2800)", "network-wait")),
        StackFact(process=again, label="sleeping", **place("reload (flaky.py:9)", "sleep")),
    ]
    facts_of_ray = RayFacts(
        calls,
        {("10.0.0.1", 1): main, (NODE.hex(), new_pid): again}
        if new_pid
        else {("10.0.0.1", 1): main},
        {fact.process: fact for fact in facts},
        {main: "stuck", again: "stuck"},
    )
    (root,) = picture(facts_of_ray).jobs[0].roots
    steps = [(link.start, link.end) for link in root.chain]
    if new_pid:
        assert steps[-1] == ("Flaky.work", "Flaky.__init__ at Flaky 0")
        assert (root.kind, root.processes[0].methods) == ("standing", ("Flaky.__init__",))
        assert "reload (flaky.py:9)" in root.why
    else:
        assert steps[-1] == ("Flaky.__init__", "a worker to run in")
    assert creation_id(actor.id) == (b"\xff" * 8 + ACTOR).hex()

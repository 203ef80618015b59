"""Ray's control store asked for calls and resources, over gRPC, of a server in this process."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest
from ray.core.generated import common_pb2, gcs_pb2, gcs_service_pb2, gcs_service_pb2_grpc

from ray_sentinel.actors.coordinator.ray.calls import ControlStoreCalls
from ray_sentinel.actors.coordinator.ray.store import RayStore
from ray_sentinel.engine.ray.long_calls import running_since
from ray_sentinel.errors import UnreachableError
from tests.support.ray_replies import Replies


class Resources(gcs_service_pb2_grpc.NodeResourceInfoGcsServiceServicer):  # type: ignore[misc]
    """Two nodes; the only service that answers."""

    def GetAllAvailableResources(self, request: Any, context: Any) -> Any:
        reply = gcs_service_pb2.GetAllAvailableResourcesReply()
        for number in (1, 2):
            node = reply.resources_list.add()
            node.node_id = bytes([number]) * 4
            own = {"node:10.0.0.1": 1.0, "CPU_group_0_29a1": 2.0}
            for name, amount in {"CPU": 3.0 + number, "TPU": 1.0, **own}.items():
                node.resources_available[name] = amount
        return reply


@pytest.fixture
def store() -> Iterator[ControlStoreCalls]:
    server = grpc.server(futures.ThreadPoolExecutor(2))
    gcs_service_pb2_grpc.add_NodeResourceInfoGcsServiceServicer_to_server(Resources(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with RayStore(f"127.0.0.1:{port}") as asked:
        yield ControlStoreCalls(asked)
    server.stop(None).wait()


def test_what_is_free_is_told_by_node_but_for_rays_own_resources(store: ControlStoreCalls) -> None:
    assert store.fetch(0.0).free_on == {
        "01010101": {"CPU": 4.0, "TPU": 1.0},
        "02020202": {"CPU": 5.0, "TPU": 1.0},
    }


def test_a_part_that_is_refused_costs_that_part_alone(store: ControlStoreCalls) -> None:
    found = store.fetch(0.0)
    assert "does not tell its jobs" in found.problem
    assert "does not tell its calls" in found.problem
    assert "free resources" not in found.problem
    assert found.drivers == found.calls == ()


def test_the_whole_reason_of_a_refusal_is_told(store: ControlStoreCalls) -> None:
    found = store.fetch(0.0)
    assert "its jobs: UNIMPLEMENTED: Method not found!; " in found.problem


def test_a_closed_channel_answers_nobody() -> None:
    with RayStore("127.0.0.1:9") as asked:
        with pytest.raises(UnreachableError, match=r"AttributeError: .*Moon"):
            asked.ask("Moon", "GetAllJobInfo")
        with pytest.raises(UnreachableError, match=r"UNAVAILABLE: .*127.0.0.1:9"):
            asked.ask("JobInfo", "GetAllJobInfo")
    with pytest.raises(UnreachableError, match="closed"):
        asked.ask("JobInfo", "GetAllJobInfo")


JOB, NODE = bytes([2, 0, 0, 0]), bytes([7]) * 28


class SilentWorkers(
    gcs_service_pb2_grpc.JobInfoGcsServiceServicer,
    gcs_service_pb2_grpc.TaskInfoGcsServiceServicer,
    gcs_service_pb2_grpc.WorkerInfoGcsServiceServicer,
):
    """Three tasks were sent to workers that have told nothing: one that is not known any more, one
    that has pid 77, and one to which its task was sent only now."""

    def GetAllJobInfo(self, request: Any, context: Any) -> Any:
        job = gcs_pb2.JobTableData(job_id=JOB, driver_pid=1, entrypoint="train.py")
        return gcs_service_pb2.GetAllJobInfoReply(job_info_list=[job])

    def GetTaskEvents(self, request: Any, context: Any) -> Any:
        reply = gcs_service_pb2.GetTaskEventsReply()
        sent = common_pb2.TaskStatus.Value("SUBMITTED_TO_WORKER")
        for number, at in ((1, 100), (2, 100), (3, 109)):
            event = reply.events_by_task.add(task_id=bytes([number]) * 24, job_id=JOB)
            event.task_info.type = "NORMAL_TASK"
            event.state_updates.node_id = NODE
            event.state_updates.worker_id = bytes([number]) * 28
            event.state_updates.state_ts_ns[sent] = at * 10**9
        return reply

    def GetWorkerInfo(self, request: Any, context: Any) -> Any:
        known = request.worker_id == bytes([2]) * 28
        worker = gcs_pb2.WorkerTableData(pid=77) if known else None
        return gcs_service_pb2.GetWorkerInfoReply(worker_table_data=worker)


def test_of_the_running_calls_the_oldest_of_each_name_counts() -> None:
    reply = gcs_service_pb2.GetTaskEventsReply()
    running = common_pb2.TaskStatus.Value("RUNNING")
    for number, (name, kind) in enumerate(
        [("a", "NORMAL_TASK"), ("a", "NORMAL_TASK"), ("B.run", "ACTOR_TASK"),
         ("B.__init__", "ACTOR_CREATION_TASK"), ("", "DRIVER_TASK")]
    ):  # fmt: skip
        event = reply.events_by_task.add(task_id=bytes([number]) * 24, job_id=JOB)
        event.task_info.type, event.task_info.name = kind, name
        event.state_updates.state_ts_ns[running] = (105 - number) * 10**9
    store = Replies(GetTaskEvents=reply)
    found = ControlStoreCalls(store).running(JOB.hex())
    assert running_since(found) == {"a": 104.0, "B.run": 103.0}
    assert ControlStoreCalls(Replies()).running(JOB.hex()) == ()


def test_what_a_job_has_called_of_lent_actors_is_among_its_ended_and_running_calls() -> None:
    """An id ends with that of the job: 0200... has called ``Store.put``, its lender and a third
    job ``Store.get``."""
    lender, other = bytes([3, 0, 0, 0]), bytes([4, 0, 0, 0])
    status = common_pb2.TaskStatus.Value

    def events(filters: dict[str, Any], **_: object) -> Any:
        reply = gcs_service_pb2.GetTaskEventsReply()
        (job,) = (one["job_id"] for one in filters["job_filters"])
        made = [(JOB, "f")] if job == JOB else [(JOB, "Store.put"), (lender, "Store.get")]
        for maker, name in (*made, *(((other, "Store.get"),) if job == lender else ())):
            number = len(reply.events_by_task) + 1
            event = reply.events_by_task.add(task_id=bytes([number]) * 20 + job, job_id=job)
            event.task_info.type, event.task_info.name = "NORMAL_TASK", name
            event.task_info.parent_task_id = bytes(20) + maker
            event.state_updates.state_ts_ns[status("RUNNING")] = 100 * 10**9
            if filters["state_filters"] == [{"predicate": "EQUAL", "state": "FINISHED"}]:
                event.state_updates.state_ts_ns[status("FINISHED")] = 103 * 10**9
        return reply

    store = ControlStoreCalls(Replies(GetTaskEvents=events))
    assert store.ended(JOB.hex())[0].keys() == {"f"}
    ended, changes = store.ended(JOB.hex(), (lender.hex(),))
    assert {name: one.count for name, one in ended.items()} == {"f": 1, "Store.put": 1}
    assert changes == (100, 103)
    assert {call.name for call in store.running(JOB.hex())} == {"f"}
    running = store.running(JOB.hex(), (lender.hex(),))
    assert {call.name for call in running} == {"f", "Store.put"}


class Lent:
    """A store with an ended job, of which two actors live, and a driver that has called one of
    them, which has called the other. A third job calls that one, too."""

    OLD, OTHER = bytes([1, 0, 0, 0]), bytes([3, 0, 0, 0])

    def __init__(self) -> None:
        self.jobs = gcs_service_pb2.GetAllJobInfoReply(
            job_info_list=[
                gcs_pb2.JobTableData(job_id=self.OLD, is_dead=True, entrypoint="make.py"),
                gcs_pb2.JobTableData(job_id=JOB, driver_pid=1, entrypoint="train.py"),
                gcs_pb2.JobTableData(job_id=self.OTHER, driver_pid=2, entrypoint="other.py"),
            ]
        )
        router, model, idle = (bytes([number]) * 12 + self.OLD for number in (1, 2, 3))
        self.called = [router.hex(), model.hex()]
        self.actors = [
            gcs_pb2.ActorTableData(actor_id=id_, job_id=self.OLD, class_name="Scorer", pid=7)
            for id_ in (router, model, idle)
        ]
        self.calls: list[tuple[bytes, bytes, bytes, str, bytes]] = [
            (JOB, bytes([9]) * 24, b"", "DRIVER_TASK", b""),
            (self.OLD, bytes([10]) * 24, bytes([9]) * 24, "ACTOR_TASK", router),
            # A coroutine of the router makes it: its creation is the parent.
            (self.OLD, bytes([11]) * 24, b"\xff" * 8 + router, "ACTOR_TASK", model),
            (self.OLD, bytes([12]) * 24, bytes([8]) * 24, "ACTOR_TASK", model),
            (self.OTHER, bytes([8]) * 24, b"", "DRIVER_TASK", b""),
        ]
        self.store = ControlStoreCalls(
            Replies(
                GetAllJobInfo=self.jobs, GetAllActorInfo=self._actors, GetTaskEvents=self._events
            )
        )

    def _actors(self, filters: dict[str, str], **_: object) -> Any:
        found = self.actors if filters == {"state": "ALIVE"} else []
        return gcs_service_pb2.GetAllActorInfoReply(actor_table_data=found)

    def _events(self, filters: dict[str, Any], **_: object) -> Any:
        reply = gcs_service_pb2.GetTaskEventsReply()
        jobs = [one["job_id"] for one in filters.get("job_filters", ())]
        ended = filters.get("state_filters") == [{"predicate": "EQUAL", "state": "FINISHED"}]
        running, finished = (
            common_pb2.TaskStatus.Value(state) for state in ("RUNNING", "FINISHED")
        )
        for job, id_, parent, kind, actor in self.calls:
            if jobs and job not in jobs:
                continue
            event = reply.events_by_task.add(task_id=id_, job_id=job)
            event.task_info.type, event.task_info.parent_task_id = kind, parent
            event.task_info.name = "Scorer.score" if actor else ""
            event.task_info.actor_id = actor
            event.state_updates.state_ts_ns[running] = 100 * 10**9
            if ended:
                event.state_updates.state_ts_ns[finished] = 103 * 10**9
        return reply


def test_what_is_called_of_actors_that_outlive_their_job_belongs_to_who_calls() -> None:
    lent = Lent()
    found = lent.store.fetch(110.0, JOB.hex(), times=True)
    assert {actor.id for actor in found.actors} == set(lent.called)
    assert {(call.id[:2], call.job, call.actor) for call in found.calls} == {
        ("09", JOB.hex(), ""),
        ("0a", JOB.hex(), lent.called[0]),
        ("0b", JOB.hex(), lent.called[1]),
    }
    assert found.ended["Scorer.score"].longest == 3.0
    assert lent.store.table(110.0).actors == ()


def test_where_all_jobs_are_looked_at_each_call_belongs_to_who_makes_it() -> None:
    found = Lent().store.fetch(110.0)
    jobs = {call.id[:2]: call.job for call in found.calls}
    assert jobs == {
        "09": JOB.hex(), "0a": JOB.hex(), "0b": JOB.hex(), "08": Lent.OTHER.hex(),
        "0c": Lent.OTHER.hex(),
    }  # fmt: skip


def test_a_task_whose_worker_tells_nothing_runs_where_it_was_sent() -> None:
    server = grpc.server(futures.ThreadPoolExecutor(2))
    for name in ("JobInfo", "TaskInfo", "WorkerInfo"):
        add = getattr(gcs_service_pb2_grpc, f"add_{name}GcsServiceServicer_to_server")
        add(SilentWorkers(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with RayStore(f"127.0.0.1:{port}") as asked:
        found = ControlStoreCalls(asked).fetch(110.0).calls
    server.stop(None).wait()
    assert [(call.state, call.pid) for call in found] == [
        ("queued", 0),
        ("running", 77),
        ("queued", 0),
    ]

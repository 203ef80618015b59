"""Ray's table, asked of a control store that answers, answers late, in part or not at all."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest
from ray.core.generated import gcs_pb2, gcs_service_pb2, gcs_service_pb2_grpc

from ray_sentinel.actors.coordinator.ray import store as ray_store
from ray_sentinel.actors.coordinator.ray import table as ray_table
from ray_sentinel.actors.coordinator.ray.calls import TRIES
from ray_sentinel.actors.coordinator.ray.store import RayStore
from ray_sentinel.actors.coordinator.ray.table import RayTable
from ray_sentinel.model.ray_calls import RayCalls
from tests.support.waiting import eventually

JOB, OTHER = bytes([2, 0, 0, 0]), bytes([3, 0, 0, 0])


class Store(
    gcs_service_pb2_grpc.JobInfoGcsServiceServicer,
    gcs_service_pb2_grpc.ActorInfoGcsServiceServicer,
    gcs_service_pb2_grpc.PlacementGroupInfoGcsServiceServicer,
    gcs_service_pb2_grpc.TaskInfoGcsServiceServicer,
):
    """Ray's services on a port of their own: they tell of jobs and actors, and of no calls."""

    def __init__(self) -> None:
        self.jobs = [JOB]
        self.ended: set[bytes] = set()
        """Those of the jobs whose drivers have ended."""
        self.rays: set[bytes] = set()
        """Those whose drivers are Ray's own."""
        self.asked = 0
        self.actors = 1
        """Of each job."""
        self.asked_for_calls = 0
        self.late = 0.0
        """Seconds until it tells of jobs."""
        self.silent = threading.Event()
        """Set: actors are not told in time."""
        self.over = threading.Event()
        self._server = grpc.server(futures.ThreadPoolExecutor(8))
        for name in ("JobInfo", "ActorInfo", "PlacementGroupInfo", "TaskInfo"):
            getattr(gcs_service_pb2_grpc, f"add_{name}GcsServiceServicer_to_server")(
                self, self._server
            )
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def stop(self) -> None:
        self.over.set()
        self._server.stop(None).wait()

    def GetAllJobInfo(self, request: Any, context: Any) -> Any:
        self.over.wait(self.late)
        self.asked += 1
        told = [
            gcs_pb2.JobTableData(
                job_id=job,
                driver_pid=job[0],
                driver_ip_address="10.0.0.1",
                entrypoint="train.py",
                is_dead=job in self.ended,
                config={"ray_namespace": "_ray_internal_dashboard"} if job in self.rays else None,
            )
            for job in self.jobs
        ]
        return gcs_service_pb2.GetAllJobInfoReply(job_info_list=told)

    def GetAllActorInfo(self, request: Any, context: Any) -> Any:
        if self.silent.is_set():
            self.over.wait(30.0)
        alive = gcs_pb2.ActorTableData.ActorState.Value("ALIVE")
        told = [
            gcs_pb2.ActorTableData(
                actor_id=bytes([number]) + job * 3,
                job_id=job,
                class_name="Rollout",
                state=alive,
                pid=9 + number,
            )
            for job in self.jobs
            for number in range(self.actors)
            if request.filters.state == alive
        ]
        return gcs_service_pb2.GetAllActorInfoReply(actor_table_data=told)

    def GetAllPlacementGroup(self, request: Any, context: Any) -> Any:
        return gcs_service_pb2.GetAllPlacementGroupReply()

    def GetTaskEvents(self, request: Any, context: Any) -> Any:
        self.asked_for_calls += 1
        return gcs_service_pb2.GetTaskEventsReply()


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    # A store that is away is asked again after a third of a second, and not waited for longer.
    monkeypatch.setattr(ray_store, "ANSWER_SECONDS", 0.3)
    monkeypatch.setattr(ray_table, "TABLE_SECONDS", 0.03)
    monkeypatch.setattr(ray_table, "MAX_SHARE", 0.5)
    made = Store()
    yield made
    made.stop()


@pytest.fixture
def told() -> list[RayCalls]:
    return []


@pytest.fixture
def table(store: Store, told: list[RayCalls]) -> Iterator[RayTable]:
    with RayStore(store.address) as asked:
        yield RayTable(asked, told.append)


def poll(table: RayTable, store: Store, times: int, seconds: float = 30.0) -> None:
    """As the coordinator does, until the store was asked so often once more."""
    wanted = store.asked + times

    def asked() -> bool:
        table.poll()
        return store.asked >= wanted

    eventually(asked, f"the store is asked {times} times", seconds, every=0.005)


def jobs(told: list[RayCalls]) -> list[list[str]]:
    return [[driver.job for driver in one.drivers] for one in told]


def test_what_changes_is_told(table: RayTable, store: Store, told: list[RayCalls]) -> None:
    poll(table, store, 3)
    assert jobs(told) == [["02000000"]], "the same again is no news"
    assert [actor.label for actor in told[0].actors] == ["Rollout 0"]
    assert list(table.drivers) == [("10.0.0.1", 2)]
    store.jobs.append(OTHER)
    poll(table, store, 2)
    assert jobs(told) == [["02000000"], ["02000000", "03000000"]]
    assert [pid for _, pid in table.drivers] == [2, 3]
    store.jobs.clear()
    poll(table, store, 2)
    assert jobs(told)[-1] == []
    assert not table.drivers


def test_half_an_answer_takes_nothing_away(
    table: RayTable, store: Store, told: list[RayCalls], caplog: pytest.LogCaptureFixture
) -> None:
    poll(table, store, 1)
    store.silent.set()
    store.jobs.append(OTHER)
    poll(table, store, 2)
    assert jobs(told)[-1] == ["02000000", "03000000"], "drivers are told all the same"
    assert [actor.job for actor in told[-1].actors] == ["02000000"], "as they were before"
    assert [record.levelname for record in caplog.records] == ["WARNING"], "it is said once"
    assert "does not tell its actors" in caplog.text
    store.silent.clear()
    poll(table, store, 2)
    assert [actor.job for actor in told[-1].actors] == ["02000000", "03000000"]


def test_a_busy_store_is_asked_again_in_time(
    table: RayTable, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_table, "MAX_SHARE", 0.02)
    store.late = 0.2
    # By the time that answers take, it would be asked three times in half a minute.
    poll(table, store, 4, 20.0)


def test_what_ray_has_forgotten_is_not_asked_for_again_and_again(
    table: RayTable, store: Store
) -> None:
    store.actors = 2
    poll(table, store, 3 * TRIES)
    assert store.asked_for_calls == TRIES


def test_an_actor_lives_on_only_where_its_job_is_told(
    table: RayTable, store: Store, told: list[RayCalls], caplog: pytest.LogCaptureFixture
) -> None:
    store.late = 1.0
    poll(table, store, 1)
    assert "does not tell its jobs" in caplog.text
    assert told == []
    store.late = 0.0
    poll(table, store, 2)
    assert jobs(told) == [["02000000"]]
    assert told[-1].outliving == ()


def test_no_answer_is_no_end_of_the_jobs(
    table: RayTable, store: Store, told: list[RayCalls], caplog: pytest.LogCaptureFixture
) -> None:
    poll(table, store, 1)
    store.stop()

    def said() -> bool:
        table.poll()
        return "does not tell its jobs" in caplog.text

    eventually(said, "that the store is away is said")
    assert jobs(told) == [["02000000"]]
    assert list(table.drivers) == [("10.0.0.1", 2)]


def test_an_address_where_nobody_can_be_is_no_error(
    told: list[RayCalls], caplog: pytest.LogCaptureFixture
) -> None:
    with RayStore("nowhere:0") as asked:
        table = RayTable(asked, told.append)
        table.poll()
    assert told == []
    assert not table.drivers
    assert "Ray's control store" in caplog.text


@pytest.mark.parametrize("others", ["ended", "rays"])
def test_jobs_whose_actors_live_on(
    table: RayTable, store: Store, told: list[RayCalls], others: str
) -> None:
    """Their drivers have ended, or are the dashboard, which deploys applications of Ray Serve."""
    store.jobs.append(OTHER)
    setattr(store, others, {OTHER})
    poll(table, store, 1)
    assert jobs(told) == [["02000000"]]
    assert [actor.job for actor in told[-1].actors] == ["02000000"]
    (driver,) = told[-1].ended_drivers
    assert (driver.job, driver.pid, driver.ended) == ("03000000", 0, True)
    assert driver.name == ("train-3" if others == "ended" else "job-3")
    assert [actor.job for actor in told[-1].outliving] == ["03000000"]
    store.actors = 0
    poll(table, store, 1)
    assert told[-1].ended_drivers == told[-1].outliving == (), "nobody lives"

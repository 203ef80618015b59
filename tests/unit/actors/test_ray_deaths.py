"""Causes of deaths, from the messages of Ray's control store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from ray.core.generated import common_pb2, gcs_pb2, gcs_service_pb2

from ray_sentinel.actors.coordinator.ray.deaths import (
    AWAY_SECONDS,
    ControlStoreDeaths,
    RayDeathWatch,
    actor_cause,
    actor_death,
    driver_death,
)
from ray_sentinel.clock import FakeClock
from ray_sentinel.errors import UnreachableError
from ray_sentinel.model.ray_calls import RayActor, RayCalls, RayDriver
from ray_sentinel.model.ray_deaths import DeathCause, RayDeath
from tests.support.ray_replies import Replies, driver_worker

DRIVER_ID = "ab" * 28
JOB = "01000000"
DRIVER = RayDriver(job=JOB, pid=10, address="10.0.0.1", name="rl-1")
ROLLOUT = RayActor(id="11" * 16, job=JOB, kind="Rollout", number=2, node="cd" * 28, pid=77)


def died(reason: str, said: str = "", **more: Any) -> Any:
    context = common_pb2.ActorDiedErrorContext(
        reason=common_pb2.ActorDiedErrorContext.Reason.Value(reason), error_message=said, **more
    )
    return common_pb2.ActorDeathCause(actor_died_error_context=context)


def worker(kind: str, detail: str) -> Any:
    return died(
        "WORKER_DIED",
        "The actor is dead because its worker process has died. "
        f"Worker exit type: {kind} Worker exit detail: {detail}",
    )


def owner(id_: str) -> Any:
    return died(
        "OWNER_DIED",
        f"The actor is dead because its owner has died. Owner Id: {id_} Owner Ip address: 10.0.0.1 "
        "Owner worker exit type: SYSTEM_ERROR Worker exit detail: Owner's worker process crashed.",
    )


def node(reason: str) -> Any:
    info = common_pb2.NodeDeathInfo(
        reason=common_pb2.NodeDeathInfo.Reason.Value(reason), reason_message="it went"
    )
    return died("NODE_DIED", "The actor died because its node has died.", node_death_info=info)


RAISED = common_pb2.ActorDeathCause(
    creation_task_failure_context=common_pb2.RayException(
        formatted_exception_string="Traceback (most recent call last):\n  a\nValueError: no model"
    )
)
NO_ENVIRONMENT = common_pb2.ActorDeathCause(
    runtime_env_failed_context=common_pb2.RuntimeEnvFailedContext(
        error_message="It failed\nno conda"
    )
)
OOM = common_pb2.ActorDeathCause(
    oom_context=common_pb2.OomContext(error_message="Memory on the node was 15 GB / 16 GB")
)


@pytest.mark.parametrize(
    ("death", "cause", "detail"),
    [
        (RAISED, "constructor", "ValueError: no model"),
        (NO_ENVIRONMENT, "runtime-env", "no conda"),
        (OOM, "oom-ray", "Memory on the node was 15 GB / 16 GB"),
        (owner(DRIVER_ID), "driver-ended", "Owner's worker process crashed."),
        (owner("ef" * 28), "owner-ended", "Owner's worker process crashed."),
        (died("RAY_KILL", "killed by ray.kill"), "killed-by-ray", "killed by ray.kill"),
        (died("OUT_OF_SCOPE", "no references"), "finished", "no references"),
        (node("UNEXPECTED_TERMINATION"), "node-lost", "it went"),
        (node("AUTOSCALER_DRAIN_PREEMPTED"), "node-drained", "it went"),
        (worker("SYSTEM_ERROR", "connection error"), "signal", "connection error"),
        (worker("INTENDED_USER_EXIT", "exit_actor() is called."), "finished", None),
        (worker("INTENDED_USER_EXIT", "by an user request"), "exited", None),
        (
            worker("SYSTEM_ERROR", "Worker exits with an exit code 3."),
            "exited",
            "exited with status 3",
        ),
        (
            worker("INTENDED_SYSTEM_EXIT", "Worker force exited because its job has finished"),
            "driver-ended",
            None,
        ),
        (
            worker("INTENDED_USER_EXIT", "Worker force exited because its job has finished"),
            "driver-ended",
            None,
        ),
        (common_pb2.ActorDeathCause(), "unknown", ""),
    ],
)
def test_an_actor_has_one_cause(death: Any, cause: DeathCause, detail: str | None) -> None:
    found, said = actor_cause(death, DRIVER_ID)
    assert found == cause
    assert detail is None or said == detail


def test_an_actor_that_lives_is_not_dead_and_one_that_ray_starts_again_is_said_to_be() -> None:
    entry = gcs_pb2.ActorTableData(class_name="Rollout", pid=77)
    assert actor_death(entry, ROLLOUT, DRIVER_ID) is None
    entry.num_restarts = 1
    again = actor_death(entry, ROLLOUT, DRIVER_ID)
    assert again is not None
    assert again.restarts
    entry.end_time = 5000
    dead = actor_death(entry, ROLLOUT, DRIVER_ID)
    assert dead is not None
    assert (dead.label, dead.pid, dead.at, dead.restarts) == ("Rollout 2", 77, 5.0, False)


def told_dead(number: int, cause: Any) -> Any:
    return gcs_pb2.ActorTableData(
        actor_id=bytes([number]) * 16, class_name="Trainer", end_time=8500, death_cause=cause
    )


def test_an_actor_that_never_began_to_work_is_told_with_the_driver_that_failed_by_it() -> None:
    driver = gcs_pb2.JobTableData(job_id=bytes.fromhex(JOB), is_dead=True, end_time=9000)
    raised = driver_worker("INTENDED_USER_EXIT", '  File "worker.py", line 9\n    raise value\n')
    dead = [told_dead(1, RAISED), told_dead(2, NO_ENVIRONMENT), told_dead(3, owner(DRIVER_ID))]
    store = Replies(
        GetAllJobInfo=gcs_service_pb2.GetAllJobInfoReply(job_info_list=[driver]),
        GetWorkerInfo=gcs_service_pb2.GetWorkerInfoReply(worker_table_data=raised),
        GetAllActorInfo=gcs_service_pb2.GetAllActorInfoReply(actor_table_data=dead),
        GetTaskEvents=gcs_service_pb2.GetTaskEventsReply(),
    )
    found = list(ControlStoreDeaths(store).deaths({}, {JOB: (DRIVER, 0)}))
    assert [(death.label, death.cause, death.detail) for death in found] == [
        ("Trainer", "constructor", "ValueError: no model"),
        ("Trainer", "runtime-env", "no conda"),
        ("driver", "exception", 'raise value (File "worker.py", line 9)'),
    ]
    store.replies["GetWorkerInfo"].worker_table_data.worker_info.clear()
    list(ControlStoreDeaths(store).deaths({}, {JOB: (DRIVER, 0)}))
    assert store.asked.count("GetAllActorInfo") == 1, "not where the driver ended well"


def job(**more: Any) -> Any:
    return gcs_pb2.JobTableData(is_dead=True, end_time=9000, **more)


@pytest.mark.parametrize(
    ("entry", "worker_entry", "cause"),
    [
        (job(), driver_worker("INTENDED_USER_EXIT"), "finished"),
        (job(), driver_worker("SYSTEM_ERROR"), "signal"),
        (job(), driver_worker("NODE_OUT_OF_MEMORY"), "oom-ray"),
        (
            job(),
            driver_worker("INTENDED_USER_EXIT", '  File "a.py", line 3\n    raise E\n'),
            "exception",
        ),
        (job(), None, "unknown"),
    ],
)
def test_a_driver_has_one_cause(entry: Any, worker_entry: Any, cause: DeathCause) -> None:
    death = driver_death(entry, worker_entry, DRIVER)
    assert death is not None
    assert (death.cause, death.at, death.label) == (cause, 9.0, "driver")


def test_a_submitted_job_is_judged_by_its_status_once_it_has_one() -> None:
    entry = job()
    entry.job_info.status = "RUNNING"
    killed = driver_worker("SYSTEM_ERROR")
    assert driver_death(entry, killed, DRIVER) is None
    entry.job_info.status = "STOPPED"
    stopped = driver_death(entry, killed, DRIVER)
    assert stopped is not None
    assert stopped.cause == "stopped"


class Store(ControlStoreDeaths):
    """Knows what it is told to; the first time it is asked it knows nothing."""

    def __init__(self) -> None:
        self.asked: list[set[str]] = []

    def deaths(self, actors: Any, drivers: Any) -> Iterator[RayDeath]:
        self.asked.append({*actors, *drivers})
        if len(self.asked) == 1:
            return
        for id_ in sorted(actors):
            yield RayDeath(what="actor", id=id_, job=JOB, label="a", at=2.0)
        for id_ in drivers:
            yield RayDeath(what="driver", id=id_, job=id_, label="driver", at=1.0)


def test_the_store_is_asked_only_for_who_has_vanished_and_each_death_is_told_once() -> None:
    store, told = Store(), list[RayDeath]()
    deaths = RayDeathWatch(store, told.extend)
    deaths.set_table(RayCalls(drivers=(DRIVER,), actors=(ROLLOUT,)))
    deaths.poll()
    assert not store.asked
    deaths.set_table(RayCalls(problem="Ray does not tell"))
    deaths.poll()
    assert not store.asked
    deaths.set_table(RayCalls())
    for _ in range(4):
        deaths.poll()
    assert store.asked == [{ROLLOUT.id, JOB}] * 2
    assert [death.what for death in told] == ["driver", "actor"]


class HalfAway(Store):
    """Answers of drivers, and is away then."""

    def deaths(self, actors: Any, drivers: Any) -> Iterator[RayDeath]:
        if actors:
            yield from super().deaths({}, drivers)
            raise UnreachableError("UNAVAILABLE: it restarts")
        yield from super().deaths(actors, drivers)


def test_half_an_answer_is_told_and_the_rest_asked_for_again_after_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, told, now = HalfAway(), list[RayDeath](), FakeClock()
    deaths = RayDeathWatch(store, told.extend, now.monotonic)
    deaths.set_table(RayCalls(drivers=(DRIVER,), actors=(ROLLOUT,)))
    deaths.set_table(RayCalls())
    for _ in range(3):
        deaths.poll()
    assert store.asked == [{JOB}], "it is not asked at once again"
    for _ in range(2):
        now.advance(AWAY_SECONDS)
        deaths.poll()
    assert [death.what for death in told] == ["driver"]
    assert store.asked == [{JOB}, {JOB}, set()]
    assert [record.getMessage() for record in caplog.records] == [
        "Ray's control store cannot be asked for deaths: UNAVAILABLE: it restarts"
    ]


@pytest.mark.parametrize(
    ("code", "proven"), [("raise E", True), ("assert x", True), ("time.sleep(60)", False)]
)
def test_a_statement_that_raises_tells_an_exception_from_ctrl_c(code: str, proven: bool) -> None:
    entry = driver_worker("INTENDED_USER_EXIT", f'  File "a.py", line 3, in f\n    {code}\n')
    death = driver_death(job(), entry, DRIVER)
    assert death is not None
    assert (death.cause, death.is_proven) == ("exception", proven)
    submitted = job()
    submitted.job_info.status = "FAILED"
    death = driver_death(submitted, entry, DRIVER)
    assert death is not None
    assert death.is_proven, "Ray would say that it was stopped"

"""Which call ended a driver, from the messages of Ray's control store."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest
from ray import exceptions
from ray.core.generated import common_pb2, gcs_pb2, gcs_service_pb2

from ray_sentinel.actors.coordinator.ray.deaths import CALL_TRIES, ControlStoreDeaths
from ray_sentinel.actors.coordinator.ray.failed_calls import (
    follows_from_a_call,
    follows_from_a_worker,
    follows_from_another,
    last_failures,
)
from ray_sentinel.model.ray_calls import FailedCall, RayDriver
from ray_sentinel.model.ray_deaths import RayDeath
from tests.support.ray_replies import Replies, driver_worker

JOB = "01000000"
DRIVER = RayDriver(job=JOB, pid=10, address="10.0.0.1", name="rl-1")


def failed(message: str) -> Any:
    event = gcs_pb2.TaskEvents(task_id=b"t")
    event.state_updates.error_info.error_type = common_pb2.TASK_EXECUTION_EXCEPTION
    event.state_updates.error_info.error_message = f"ray::f() (pid=7)\n  File 'a'\n{message}"
    return event


@pytest.mark.parametrize(
    ("message", "follows"),
    [
        ("ValueError: no batch", False),
        ("ray.exceptions.GetTimeoutError: Get timed out", False),
        ("ray.exceptions.WorkerCrashedError: The worker died unexpectedly", True),
        ("ray.exceptions.ActorDiedError: The actor died\n\tclass_name: Engine", True),
        ("ray.exceptions.RayTaskError(ValueError): ray::g() (pid=8)\nValueError: no batch", True),
        ("ValueError: it said: ray.exceptions.ActorDiedError", False),
    ],
)
def test_a_call_that_ray_told_of_another_is_not_the_first(message: str, *, follows: bool) -> None:
    assert follows_from_another(failed(message)) is follows


def test_of_the_last_failures_only_those_that_follow_from_no_other_are_told() -> None:
    reply = gcs_service_pb2.GetTaskEventsReply()
    messages = ("KeyError: 1", "ray.exceptions.ActorDiedError: The actor died", "ValueError: 2")
    for at, message in enumerate(messages, start=100):
        event = failed(message)
        event.task_info.name, event.task_info.actor_id = "Producer.run", b"a"
        event.state_updates.state_ts_ns[common_pb2.FAILED] = at * 10**9
        reply.events_by_task.append(event)
    assert last_failures(reply, 200.0, {b"a".hex(): "Producer 0"}) == (
        FailedCall(name="Producer.run", actor="Producer 0", at=100.0, error="KeyError: 1"),
        FailedCall(name="Producer.run", actor="Producer 0", at=102.0, error="ValueError: 2"),
    )


def raised(error: Exception, cause: Exception | None = None) -> str:
    """What Python writes of it."""
    try:
        raise error from cause
    except type(error):
        return traceback.format_exc()


def in_group(text: str) -> str:
    """What Python writes of an exception that is one of a group."""
    lines = "".join(f"    | {line}\n" for line in text.splitlines())
    return f"  | ExceptionGroup: tasks (1 sub-exception)\n  +-+---- 1 ----\n{lines}    +-----\n"


def told_of(cause: Exception) -> exceptions.RayTaskError:
    """What is stored of a call that raised ``cause``."""
    return exceptions.RayTaskError("g", raised(cause), cause, "ray::g", 8, "10.0.0.1")


def at_get(cause: Exception) -> Exception:
    return told_of(cause).as_instanceof_cause()


CALL, OTHER, OWN = "a call", "another", "its own"


@pytest.mark.parametrize(
    ("make", "first"),
    [
        (lambda: raised(KeyError("batch")), OWN),
        (lambda: raised(MemoryError("x" * 1_000_000)), OWN),
        (lambda: raised(at_get(KeyError("batch"))), CALL),
        # As its cause's class says nothing more, it stays what it is.
        (lambda: raised(at_get(Exception("no batch"))), CALL),
        # An argument is raised as it was stored.
        (lambda: raised(told_of(KeyError("batch"))), CALL),
        (lambda: raised(at_get(at_get(KeyError("batch")))), CALL),
        (lambda: raised(RuntimeError("step 3"), at_get(KeyError("batch"))), CALL),
        (lambda: in_group(raised(at_get(KeyError("batch")))), CALL),
        (lambda: raised(exceptions.OutOfMemoryError("node is full")), CALL),
        (lambda: raised(exceptions.ActorDiedError()), OTHER),
        (lambda: raised(exceptions.RayActorError()), OTHER),
        (lambda: in_group(raised(exceptions.ActorDiedError())), OTHER),
        (lambda: raised(at_get(exceptions.ActorDiedError())), OTHER),
        (lambda: raised(RuntimeError("step 3"), exceptions.ActorDiedError()), OTHER),
    ],
)
def test_what_a_call_was_told_of(make: Callable[[], str], first: str) -> None:
    event = failed(make())
    assert follows_from_another(event) is (first != OWN)
    assert follows_from_a_call(event) is (first == CALL)


def test_a_call_that_ray_ended_for_memory_is_the_first() -> None:
    event = failed("Task was killed due to the node running low on memory.")
    event.state_updates.error_info.error_type = common_pb2.OUT_OF_MEMORY
    assert not follows_from_another(event)


@pytest.mark.parametrize(
    ("error", "waits"), [(at_get(KeyError("batch")), 5), (exceptions.ActorDiedError(), 2)]
)
def test_the_first_call_is_waited_for_where_it_was_a_call(error: Exception, waits: int) -> None:
    """And a driver says what it was told, where none is found."""
    driver = gcs_pb2.JobTableData(job_id=bytes.fromhex(JOB), is_dead=True, end_time=9000)
    said = '  File "worker.py", line 9\n    raise value.as_instanceof_cause()\n'
    ended = driver_worker("INTENDED_USER_EXIT", said)
    events = [failed(raised(error))]
    replies = Replies(
        GetAllJobInfo=gcs_service_pb2.GetAllJobInfoReply(job_info_list=[driver]),
        GetWorkerInfo=gcs_service_pb2.GetWorkerInfoReply(worker_table_data=ended),
        GetAllActorInfo=gcs_service_pb2.GetAllActorInfoReply(),
        GetTaskEvents=gcs_service_pb2.GetTaskEventsReply(events_by_task=events),
    )
    store = ControlStoreDeaths(replies)
    told = [list(store.deaths({}, {JOB: (DRIVER, tries)})) for tries in range(6)]
    assert [bool(deaths) for deaths in told] == [tries >= waits for tries in range(6)]
    (death,) = told[-1]
    assert death.what == "driver"
    assert "as_instanceof_cause" not in death.detail


AT_LOSS = '  File "worker.py", line 9\n    raise value\n'
AT_CALL = '  File "worker.py", line 9\n    raise value.as_instanceof_cause()\n'
ENDED = 100.0
"""When the driver ended, as Unix time."""
LEFT = "Worker is requested to be destroyed when it is returned. Worker exits with an exit code 0."
GONE = "Worker unexpectedly exits with a connection error code 2. End of file."
WITH_JOB = "Worker force exited because its job has finished"
BY_SIGTERM = "Worker exits with an exit code 1. The process receives a SIGTERM."
SPENT = "Worker exits with an exit code 0. Exited because worker reached max_calls=1."
CANCELLED = "The worker exits because the task crush has received a force ray.cancel request."


def call(name: str, worker: int, *, number: int = 0, error: str = "", **times: float) -> Any:
    """An attempt of a task; ``times``: of the states that are known of it."""
    event = gcs_pb2.TaskEvents(task_id=name.encode(), attempt_number=number)
    event.task_info.name = name
    event.state_updates.worker_id = bytes([worker]) * 28
    for state, at in times.items():
        event.state_updates.state_ts_ns[common_pb2.TaskStatus.Value(state)] = int(at * 1e9)
    if error:
        event.state_updates.error_info.error_type = common_pb2.WORKER_DIED
        event.state_updates.error_info.error_message = error
    return event


def with_worker(kind: int, said: str) -> str:
    """What Ray's store says of a call of which only its worker's end is known."""
    return f"Worker running the task (ab) died with exit_type: {kind} with error_message: {said}"


def ended_worker(number: int, kind: str, said: str, at: float, job: str = JOB) -> Any:
    return gcs_pb2.WorkerTableData(
        worker_address=common_pb2.Address(worker_id=bytes([number]) * 28, node_id=b"n"),
        exit_type=common_pb2.WorkerExitType.Value(kind),
        exit_detail=said,
        pid=1000 + number,
        end_time_ms=int(at * 1000),
        job_id=bytes.fromhex(job),
    )


def store_of(said: str, events: list[Any], workers: list[Any]) -> Replies:
    """Of a job whose driver ended at ENDED with that traceback."""

    def tasks(*, filters: Any, **_: Any) -> Any:
        found = events
        if "state_filters" in filters:
            failed = common_pb2.FAILED
            found = [event for event in found if failed in event.state_updates.state_ts_ns]
        if "task_filters" in filters:
            (same,) = filters["task_filters"]
            found = [event for event in found if event.task_id == same["task_id"]]
        return gcs_service_pb2.GetTaskEventsReply(events_by_task=found)

    entry = gcs_pb2.JobTableData(
        job_id=bytes.fromhex(JOB), is_dead=True, end_time=int(ENDED * 1000)
    )
    ended = driver_worker("INTENDED_USER_EXIT", said)
    return Replies(
        GetAllJobInfo=gcs_service_pb2.GetAllJobInfoReply(job_info_list=[entry]),
        GetWorkerInfo=gcs_service_pb2.GetWorkerInfoReply(worker_table_data=ended),
        GetAllActorInfo=gcs_service_pb2.GetAllActorInfoReply(),
        GetTaskEvents=tasks,
        GetAllWorkerInfo=gcs_service_pb2.GetAllWorkerInfoReply(worker_table_data=workers),
    )


def told_of_calls(store: Replies, tries: int = 6) -> list[RayDeath]:
    *calls, driver = ControlStoreDeaths(store).deaths({}, {JOB: (DRIVER, tries)})
    assert driver.what == "driver"
    return calls


def test_a_task_that_leaves_amid_its_call_is_told_by_its_worker() -> None:
    events = [
        call("load", 1, RUNNING=90, FINISHED=91),
        call("part", 1, RUNNING=98, FINISHED=99.01),
        call("load", 2, RUNNING=90, FINISHED=91),
        call("other", 2, RUNNING=95, FAILED=100.02, error=with_worker(3, WITH_JOB)),
    ]
    workers = [
        ended_worker(1, "SYSTEM_ERROR", LEFT, 99),
        ended_worker(2, "INTENDED_USER_EXIT", WITH_JOB, 100.02),
    ]
    (death,) = told_of_calls(store_of(AT_LOSS, events, workers), tries=0)
    assert (death.what, death.label, death.role, death.method) == ("worker", "part", "task", "part")
    assert (death.cause, death.detail) == ("exited", "exited with status 0 amid a call")
    assert (death.pid, death.node, death.at) == (1001, b"n".hex(), 99.0)


def test_a_call_whose_last_events_were_lost_is_told_by_its_worker() -> None:
    events = [call("crush", 1, SUBMITTED_TO_WORKER=98)]
    workers = [ended_worker(1, "SYSTEM_ERROR", GONE, 99)]
    (death,) = told_of_calls(store_of(AT_LOSS, events, workers))
    assert (death.label, death.cause, death.detail, death.pid) == ("crush", "signal", "", 1001)


def test_of_a_task_that_left_each_time_the_last_worker_is_told() -> None:
    events = [
        call("part", 1, RUNNING=96, FAILED=97, error="RpcError: Socket closed"),
        call("part", 2, number=1, RUNNING=98, FINISHED=99),
    ]
    workers = [ended_worker(number, "SYSTEM_ERROR", LEFT, 95 + 2 * number) for number in (1, 2)]
    (death,) = told_of_calls(store_of(AT_LOSS, events, workers))
    assert (death.label, death.pid) == ("part", 1002)


RUNS: dict[str, Any] = {"RUNNING": 98.0}
AT_END: dict[str, Any] = {"RUNNING": 98.0, "FAILED": 100.02}


@pytest.mark.parametrize(
    ("event", "worker"),
    [
        pytest.param(
            call("part", 1, **AT_END, error=with_worker(3, WITH_JOB)),
            ended_worker(1, "INTENDED_USER_EXIT", WITH_JOB, 100.02),
            id="ended with its job",
        ),
        pytest.param(
            call("part", 1, **AT_END, error=with_worker(0, BY_SIGTERM)),
            ended_worker(1, "SYSTEM_ERROR", BY_SIGTERM, 100.02),
            id="ended by Ray after the driver",
        ),
        pytest.param(
            call("part", 1, **RUNS),
            ended_worker(1, "INTENDED_USER_EXIT", CANCELLED, 99),
            id="cancelled",
        ),
        pytest.param(
            call("part", 1, **RUNS, FINISHED=99),
            ended_worker(1, "INTENDED_USER_EXIT", SPENT, 99),
            id="made all calls that it may",
        ),
        pytest.param(
            call("part", 1, RUNNING=80, FINISHED=81),
            ended_worker(1, "INTENDED_SYSTEM_EXIT", "Worker killed because it was idle.", 99),
            id="ended by Ray when it was idle",
        ),
        pytest.param(
            call("part", 1, RUNNING=80, FINISHED=81),
            ended_worker(1, "SYSTEM_ERROR", GONE, 99),
            id="ended by itself when it was idle",
        ),
        pytest.param(
            call("part", 2, **RUNS),
            ended_worker(1, "SYSTEM_ERROR", GONE, 99, "02000000"),
            id="of another job",
        ),
        pytest.param(
            call("part", 2, **RUNS),
            ended_worker(1, "SYSTEM_ERROR", GONE, 99, ""),
            id="maybe of another job",
        ),
    ],
)
def test_a_worker_that_failed_no_call_is_not_told(event: Any, worker: Any) -> None:
    assert told_of_calls(store_of(AT_LOSS, [event], [worker])) == []


def test_a_task_that_was_tried_again_and_an_actor_are_not_told() -> None:
    events = [
        call("part", 1, RUNNING=90, FAILED=91, error="RpcError: Socket closed"),
        call("part", 2, number=1, RUNNING=91, FINISHED=92),
        call("Engine.load", 3, RUNNING=98),
    ]
    events[-1].task_info.actor_id = b"a"
    workers = [
        ended_worker(1, "SYSTEM_ERROR", GONE, 91),
        ended_worker(3, "SYSTEM_ERROR", GONE, 99),
    ]
    assert told_of_calls(store_of(AT_LOSS, events, workers)) == []


def echo(cause: Exception) -> Any:
    event = failed(raised(cause))
    event.state_updates.state_ts_ns[common_pb2.FAILED] = int(99.5e9)
    return event


def test_a_call_of_which_nothing_is_known_is_told_where_a_call_was_told_of_its_loss() -> None:
    workers = [
        ended_worker(1, "SYSTEM_ERROR", GONE, 99),
        ended_worker(2, "SYSTEM_ERROR", GONE, 99, ""),
    ]
    lost = echo(exceptions.WorkerCrashedError())
    assert follows_from_a_worker(lost)
    store = store_of(AT_CALL, [lost], workers)
    early = ControlStoreDeaths(store).deaths({}, {JOB: (DRIVER, CALL_TRIES - 1)})
    assert not [*early], "its events may come"
    (death,) = told_of_calls(store, CALL_TRIES)
    assert (death.label, death.role, death.method, death.pid) == ("task", "task", "", 1001)


def test_workers_are_not_asked_for_where_a_call_has_raised() -> None:
    workers = [ended_worker(1, "SYSTEM_ERROR", GONE, 99)]
    store = store_of(AT_CALL, [echo(at_get(KeyError("batch")))], workers)
    assert told_of_calls(store) == []
    assert "GetAllWorkerInfo" not in store.asked


def test_a_ray_that_does_not_tell_of_workers_costs_no_more_than_the_call() -> None:
    store = store_of(AT_LOSS, [call("part", 1, RUNNING=98, FINISHED=99)], [])
    del store.replies["GetAllWorkerInfo"]
    assert told_of_calls(store) == []


def test_a_call_that_the_driver_went_on_after_hides_no_loss() -> None:
    own = failed("ValueError: no batch")
    own.state_updates.state_ts_ns[common_pb2.FAILED] = int(95e9)
    events = [own, call("part", 1, RUNNING=98, FINISHED=99)]
    workers = [ended_worker(1, "SYSTEM_ERROR", LEFT, 99)]
    (death,) = told_of_calls(store_of(AT_LOSS, events, workers))
    assert death.label == "part"

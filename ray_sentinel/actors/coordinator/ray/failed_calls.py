"""Which call ended the driver of a Ray job, according to Ray's control store once it has ended.

The store keeps the error of each failed call, and the exit of each ended worker. A task that leaves
by ``sys.exit(0)`` is listed as finished, and the last events of an ending process are lost: in
these cases the table of workers shows what the table of tasks does not. Errors: ``ErrorType`` in
``common.proto``; their words: ``gcs_task_manager.cc`` and ``_raylet.pyx``.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.actors.coordinator.ray.replies import enum_name, id_of
from ray_sentinel.actors.coordinator.ray.said import cut_line, first_line, last_line
from ray_sentinel.actors.coordinator.ray.store import RayStore
from ray_sentinel.errors import UnreachableError
from ray_sentinel.model.ray_calls import FailedCall, RayDriver
from ray_sentinel.model.ray_deaths import DeathCause, RayDeath

log = logging.getLogger(__name__)

MOST_FAILED = 200
"""Most failed calls of a job that are requested."""
MOST_TOLD = 5
"""Most failed calls that are told of in a look at a job."""
MOST_TRIED = 10
"""Most tasks that failed with their workers for which Ray is asked whether they were tried again;
also the most lost workers that are reported."""
MOST_ENTRIES = 10_000
"""Most workers of the cluster, and most calls of a job, that are examined; Ray gives them in no
order."""
FLUSH_SECONDS = 1.0
"""Seconds between two reports of a Ray process about its calls."""
STORE = "control store"

_OF_A_CALL, _OF_A_WORKER = "raise value.as_instanceof_cause", "raise value"
"""Lines in the traceback of a ``ray.get`` whose call has raised an exception, or has lost its
worker (``ray/_private/worker.py``). The call may also be one that produced an argument."""
_AT_LOSS = re.compile(r"(?m)^[ \t]*raise value$")
_RAISED_ITSELF = "TASK_EXECUTION_EXCEPTION"
_OF_ANOTHER = re.compile(
    r"(?m)^(?: *\| )?ray\.exceptions\."
    r"(?:(?P<call>RayTaskError|(?P<worker>WorkerCrashedError|OutOfMemoryError))"
    r"|RayActorError|ActorDiedError|ActorUnavailableError|LocalRayletDiedError|NodeDiedError"
    r"|OwnerDiedError|ObjectLostError|ObjectReconstructionFailedError|ObjectFetchTimedOutError)\b"
)
"""An exception by which Ray tells a call that another one has failed, or that a process has ended
(``ray.exceptions``): the call is the first witness of the other's failure, and not to blame. For a
plain ``Exception``, and for a failed argument, ``RayTaskError`` names no class; within an exception
group, a bar precedes the line."""
_FAILURES: Mapping[str, DeathCause] = {
    _RAISED_ITSELF: "exception",
    "WORKER_DIED": "signal",
    "OUT_OF_MEMORY": "oom-ray",
}
"""Errors of calls that do not follow from another call's failure."""
_WITH_WORKER = re.compile(r"died with exit_type: (\d{1,9}) with error_message: (.*)")
"""What the store says of a call that failed with its worker, where nobody else reported the
worker's end."""
_STATUS = re.compile(r"exit code (-?\d{1,9})\.")
INTENDED = frozenset({"INTENDED_USER_EXIT", "INTENDED_SYSTEM_EXIT"})


class FailedCalls:
    """Asks Ray's control store for failed calls of a job. Used by one thread."""

    def __init__(self, store: RayStore) -> None:
        self._store = store

    def first(self, job: bytes, until: float) -> tuple[Any | None, list[Any]]:
        """The call of an actor or a task of a job that failed first, by an exception of its own or,
        for a task that is not tried again, with its worker; and the calls that failed because of
        another one. ``until`` is when the driver ended, as Unix time."""
        reply = self._store.ask(
            "TaskInfo",
            "GetTaskEvents",
            limit=MOST_FAILED,
            filters={
                "job_filters": [{"predicate": "EQUAL", "job_id": job}],
                "state_filters": [{"predicate": "EQUAL", "state": "FAILED"}],
                "exclude_driver": True,
            },
        )
        failed = failures(reply, until)
        echoes = [one for one in failed if follows_from_another(one)]
        first = [one for one in failed if not follows_from_another(one)]
        for one in first[:MOST_TRIED]:
            if _error_of(one) == _RAISED_ITSELF or not self._was_tried_again(one):
                return one, echoes
        return None, echoes

    def _was_tried_again(self, event: Any) -> bool:
        same = [{"predicate": "EQUAL", "task_id": event.task_id}]
        reply = self._store.ask(
            "TaskInfo", "GetTaskEvents", limit=MOST_FAILED, filters={"task_filters": same}
        )
        return any(one.attempt_number > event.attempt_number for one in reply.events_by_task)

    def with_pid(self, death: RayDeath, worker_id: bytes) -> RayDeath:
        """The death with the pid of its worker: a worker that is killed in a call had no time to
        report the pid along with it."""
        worker = self.worker(worker_id) if worker_id and not death.pid else None
        return death if worker is None else msgspec.structs.replace(death, pid=worker.pid)

    def worker(self, worker_id: bytes) -> Any | None:
        """What is known of a worker or a driver (``WorkerTableData``)."""
        reply = self._store.ask("WorkerInfo", "GetWorkerInfo", worker_id=worker_id)
        return reply.worker_table_data if reply.HasField("worker_table_data") else None

    def lost_workers(self, driver: RayDriver, until: float, *, unknown: bool) -> list[RayDeath]:
        """The deaths of workers that ended by themselves before their job's driver did, while they
        ran a task that was not tried again; of many the last ones. If there are none, and with
        ``unknown``, those for which it is unknown what they ran at that time."""
        try:
            reply = self._store.ask("WorkerInfo", "GetAllWorkerInfo", limit=MOST_ENTRIES)
            job = bytes.fromhex(driver.job)
            ended = ended_workers(reply, job, until)
            if not ended:
                return []
            filters = {
                "job_filters": [{"predicate": "EQUAL", "job_id": job}],
                "exclude_driver": True,
            }
            tasks = self._store.ask(
                "TaskInfo", "GetTaskEvents", limit=MOST_ENTRIES, filters=filters
            )
        except UnreachableError as error:
            log.info("Ray does not tell which workers have ended: %s", error)
            return []
        last = LastCalls(tasks.events_by_task)
        found = [
            lost_worker(one, task, driver)
            for one in ended
            if (task := last.when_it_ended(one)) is not None
        ]
        if unknown and not found:
            found = [lost_worker(one, None, driver) for one in ended if last.may_have_run(one)]
        return found[-MOST_TRIED:]


class LastCalls:
    """What workers ran last, among the calls of a job (``TaskEvents``)."""

    def __init__(self, events: Iterable[Any]) -> None:
        self._last: dict[bytes, Any] = {}
        """The last call of each worker, by the worker's id."""
        self._attempts: dict[bytes, int] = {}
        """The number of each task's last attempt, by the task's id."""
        for event in events:
            number = self._attempts.get(event.task_id, 0)
            self._attempts[event.task_id] = max(number, int(event.attempt_number))
            worker = event.state_updates.worker_id
            if worker and _last_time(event) >= _last_time(self._last.get(worker)):
                self._last[worker] = event

    def when_it_ended(self, worker: Any) -> Any | None:
        """The task that a worker (``WorkerTableData``) was running when it ended, unless the task
        was tried again. None also for an actor's worker, whose end others report."""
        last = self._last.get(worker.worker_address.worker_id)
        if last is None or last.task_info.actor_id or self._was_tried_again(last):
            return None
        return None if _had_ended(last, _end_of(worker)) else last

    def may_have_run(self, worker: Any) -> bool:
        """Whether a worker may have been running an unknown task when it ended."""
        last = self._last.get(worker.worker_address.worker_id)
        if last is None:
            return bool(_job_of(worker))
        return not (last.task_info.actor_id or self._was_tried_again(last))

    def _was_tried_again(self, event: Any) -> bool:
        return self._attempts[event.task_id] > int(event.attempt_number)


def _last_time(event: Any | None) -> int:
    return 0 if event is None else max(event.state_updates.state_ts_ns.values(), default=0)


def _had_ended(event: Any, at: float) -> bool:
    """Whether a call had ended well before its worker did: a call that takes its worker with it is
    also reported as ended."""
    ends = _ended_states() & event.state_updates.state_ts_ns.keys()
    return bool(ends) and _last_time(event) / 1e9 < at - FLUSH_SECONDS


def _ended_states() -> Collection[int]:
    from ray.core.generated import common_pb2

    return {common_pb2.TaskStatus.Value(name) for name in ("FINISHED", "FAILED")}


def ended_workers(reply: Any, job: bytes, until: float) -> list[Any]:
    """The workers that may belong to a job and ended by themselves before that moment (Unix time),
    from a ``GetAllWorkerInfoReply``, the earliest first."""
    return sorted((w for w in reply.worker_table_data if _may_be_of(w, job, until)), key=_end_of)


def _may_be_of(worker: Any, job: bytes, until: float) -> bool:
    # Between the news that ends a driver and its end there is half a second in which it leaves Ray:
    # no allowance for the clocks of two nodes is made, for workers end by the driver's end too.
    return (
        not worker.is_alive
        and enum_name(worker, "worker_type") == "WORKER"
        and _job_of(worker) in (b"", job)
        and 0 < _end_of(worker) <= until
        and own_end(enum_name(worker, "exit_type"), worker.exit_detail) is not None
    )


def _job_of(worker: Any) -> bytes:
    # Older versions of Ray do not report it.
    return bytes(getattr(worker, "job_id", b""))


def _end_of(worker: Any) -> float:
    return float(worker.end_time_ms / 1000)


def own_end(kind: str, said: str) -> tuple[DeathCause, str] | None:
    """Cause and detail of a worker's end, from its ``WorkerExitType`` and Ray's message. None for a
    worker that Ray ended intentionally: with its job, because it was idle, or because it was
    cancelled.

    >>> own_end("INTENDED_USER_EXIT", "Worker exits with an exit code 0.")
    ('exited', 'exited with status 0 amid a call')
    """
    status = _STATUS.search(said)
    if kind == "NODE_OUT_OF_MEMORY":
        return "oom-ray", first_line(said)
    if kind not in ("SYSTEM_ERROR", *INTENDED) or (kind in INTENDED and status is None):
        return None
    # What follows in the text is why Ray had it leave: it has made as many calls as allowed
    # (``max_calls``).
    if status is not None and int(status[1]) == 0 and said[status.end() :].strip():
        return None
    if "SIGTERM" in said:
        return "signal", "killed by SIGTERM"
    return ("exited", f"exited with status {status[1]} amid a call") if status else ("signal", "")


def failures(reply: Any, until: float) -> list[Any]:
    """The calls that failed by an exception of their own, or with their workers, from a
    ``GetTaskEventsReply``, the earliest first: what fails because of another call fails later.
    Without those whose workers were ended by Ray, or after that moment (Unix time)."""
    from ray.core.generated import common_pb2

    failed = common_pb2.TaskStatus.Value("FAILED")
    own = [
        event
        for event in reply.events_by_task
        if _error_of(event) in _FAILURES and not _was_ended_by_ray(event, failed, until)
    ]
    return sorted(own, key=lambda e: e.state_updates.state_ts_ns.get(failed, 0))


def last_failures(reply: Any, until: float, labels: Mapping[str, str]) -> tuple[FailedCall, ...]:
    """The last calls that failed by an exception of their own, from a ``GetTaskEventsReply``, the
    earliest first. ``labels`` are what actors are called, by their ids."""
    own = [
        event
        for event in failures(reply, until)
        if _error_of(event) == _RAISED_ITSELF and not follows_from_another(event)
    ]
    return tuple(
        FailedCall(
            name=_method_of(event),
            actor=labels.get(id_of(event.task_info.actor_id), ""),
            at=_last_time(event) / 1e9,
            error=failure_of(event),
        )
        for event in own[-MOST_TOLD:]
    )


def _was_ended_by_ray(event: Any, failed: int, until: float) -> bool:
    from ray.core.generated import common_pb2

    found = _WITH_WORKER.search(event.state_updates.error_info.error_message)
    if found is None or _error_of(event) == _RAISED_ITSELF:
        return False
    kinds = common_pb2.WorkerExitType.DESCRIPTOR.values_by_number
    kind = kinds[int(found[1])].name if int(found[1]) in kinds else ""
    late = event.state_updates.state_ts_ns.get(failed, 0) / 1e9 > until
    return late or own_end(kind, found[2]) is None


def follows_from_another(event: Any) -> bool:
    """Whether a call failed because Ray told it of another's failure, or of a process's end."""
    return _error_of(event) == _RAISED_ITSELF and bool(_causes(event))


def follows_from_a_call(event: Any) -> bool:
    """Whether the failure that it was told of began with a call."""
    causes = _causes(event)
    return bool(causes) and causes[-1]["call"] is not None


def follows_from_a_worker(event: Any) -> bool:
    """Whether the failure that it was told of began with a call that lost its worker."""
    causes = _causes(event)
    return bool(causes) and causes[-1]["worker"] is not None


def _causes(event: Any) -> list[Any]:
    """Ray's errors that a call's traceback shows. The cause of all, the innermost exception, is the
    last, as Python writes it."""
    return [*_OF_ANOTHER.finditer(event.state_updates.error_info.error_message)]


def shows_failed_call(traceback: str) -> bool:
    """Whether a driver's traceback shows that ``ray.get`` raised the exception of a call."""
    return _OF_A_CALL in traceback


def may_show_lost_worker(traceback: str, echoes: Iterable[Any]) -> bool:
    """Whether a driver's traceback may be of a call that had lost its worker, or of one of those
    that failed because of it."""
    shown = shows_failed_call(traceback) and any(map(follows_from_a_worker, echoes))
    return shown or _AT_LOSS.search(traceback) is not None


def may_show_failure(traceback: str, event: Any) -> bool:
    """Whether a driver's traceback may be of that failure."""
    return (_OF_A_CALL if _error_of(event) == _RAISED_ITSELF else _OF_A_WORKER) in traceback


def _error_of(event: Any) -> str:
    """Ray's word for the error of a call. Empty for an actor's call that did not raise it by
    itself: the actor's death shows why."""
    update = event.state_updates
    if not update.HasField("error_info"):
        return ""
    error = enum_name(update.error_info, "error_type")
    return error if error == _RAISED_ITSELF or not event.task_info.actor_id else ""


def failed_call(event: Any, driver: RayDriver) -> RayDeath:
    """The death of an actor or a task whose failure ended the driver."""
    info, update = event.task_info, event.state_updates
    method = _method_of(event)
    role = method.rpartition(".")[0] or "task"
    cause = _FAILURES.get(_error_of(event), "exception")
    return RayDeath(
        what="actor" if info.actor_id else "worker",
        id=id_of(info.actor_id) or id_of(update.worker_id),
        job=driver.job,
        label=role if info.actor_id else method,
        role=role,
        method=method,
        node=id_of(update.node_id),
        pid=update.worker_pid,
        at=max(update.state_ts_ns.values(), default=0) / 1e9,
        cause=cause,
        # For the end of a worker, Ray's text says how it was noticed.
        detail="" if cause == "signal" else failure_of(event),
        witness=STORE,
    )


def lost_worker(worker: Any, task: Any | None, driver: RayDriver) -> RayDeath:
    """The death in a ``WorkerTableData`` of a worker that ended by itself. ``task`` is what it was
    running then, if known."""
    cause, detail = own_end(enum_name(worker, "exit_type"), worker.exit_detail) or ("unknown", "")
    method = "" if task is None else _method_of(task)
    return RayDeath(
        what="worker",
        id=id_of(worker.worker_address.worker_id),
        job=driver.job,
        label=method or "task",
        role="task",
        method=method,
        node=id_of(worker.worker_address.node_id),
        address=cut_line(worker.worker_address.ip_address),
        pid=worker.pid,
        at=_end_of(worker),
        cause=cause,
        detail=detail,
        witness=STORE,
    )


def _method_of(event: Any) -> str:
    return cut_line(event.task_info.name or event.task_info.func_or_class_name)


def failure_of(event: Any) -> str:
    """The last line of a failed call's error."""
    return last_line(event.state_updates.error_info.error_message)

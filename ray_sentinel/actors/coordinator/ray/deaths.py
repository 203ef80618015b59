"""Why actors and drivers of Ray jobs ended, asked of Ray's control store once they are gone.

The store keeps a cause with each dead actor, an exit type with each dead worker, and of a driver
the traceback that Ray's excepthook pushed (``custom_excepthook`` in ``ray/_private/worker.py``).
Causes: ``ActorDeathCause`` in ``common.proto``; their words: ``gcs_actor_manager.cc`` of Ray 2.60.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.actors.coordinator.ray.replies import class_name, cut, enum_name, id_of
from ray_sentinel.actors.coordinator.ray.store import RayStore
from ray_sentinel.errors import UnreachableError
from ray_sentinel.model.progress import RayExit
from ray_sentinel.model.ray_calls import RayActor, RayCalls, RayDriver
from ray_sentinel.model.ray_deaths import DeathCause, RayDeath
from ray_sentinel.text import clean

log = logging.getLogger(__name__)

MOST_AT_ONCE = 200
"""Dead actors that are asked for one by one; of more that vanish at once the rest goes untold."""
MOST_FAILED = 200
"""Failed calls of a job that are asked for."""
MOST_TRIED = 10
"""Tasks that failed with their workers of which is asked whether they were tried again."""
MOST_DEAD = 2000
"""Dead actors of a job whose driver has failed that are looked through."""
TRIES = 6
"""So often a death is asked for that the store does not know yet."""
AWAY_SECONDS = 10.0
"""Between two questions where the store does not answer."""
MOST_DETAIL = 300
"""Characters."""
CALL_TRIES = 2
"""So long the end of a driver waits for the call that failed: workers tell them late."""
FIRST_TRIES = 5
"""So long where it is known that another call failed first, and not which."""
SUBMISSION_TRIES = 4
"""So long the end of a submitted job waits for its status, which is written after it."""

_OWNER = re.compile(r"Owner Id: ([0-9a-f]+)")
_EXIT_TYPE = re.compile(r"Worker exit type: ([A-Z_]+)")
_EXIT_DETAIL = re.compile(r"Worker exit detail: (.*)")
_STATUS = re.compile(r"exit code (\d+)\.")
_RAISED = re.compile(r"^(raise|assert)\b")
"""Code that no Ctrl-C interrupts: it raises by itself."""
_OF_A_CALL, _OF_A_WORKER = "raise value.as_instanceof_cause", "raise value"
"""In the traceback of a ``ray.get`` whose call has raised, or lost its worker
(``ray/_private/worker.py``); the call may be one that gave its argument."""
IN_CALL = "left amid a call, which Ray counts as finished"
_RAISED_ITSELF = "TASK_EXECUTION_EXCEPTION"
_OF_ANOTHER = re.compile(
    r"(?m)^(?: *\| )?ray\.exceptions\.(?:(?P<call>RayTaskError|WorkerCrashedError|OutOfMemoryError)"
    r"|RayActorError|ActorDiedError|ActorUnavailableError|LocalRayletDiedError|NodeDiedError"
    r"|OwnerDiedError|ObjectLostError|ObjectReconstructionFailedError|ObjectFetchTimedOutError)\b"
)
"""An exception by which Ray tells a call that another one has failed, or that somebody has ended
(``ray.exceptions``): the call is the other's first witness, and not to blame. Of a plain
``Exception``, and of an argument, ``RayTaskError`` names no class; in a group a bar is before."""
_FAILURES: Mapping[str, DeathCause] = {
    _RAISED_ITSELF: "exception",
    "WORKER_DIED": "signal",
    "OUT_OF_MEMORY": "oom-ray",
}
"""Errors of calls (``ErrorType`` in ``common.proto``) that follow from no other's."""
_INTENDED = frozenset({"INTENDED_USER_EXIT", "INTENDED_SYSTEM_EXIT"})
_PLANNED = frozenset(
    {"EXPECTED_TERMINATION", "AUTOSCALER_DRAIN_PREEMPTED", "AUTOSCALER_DRAIN_IDLE"}
)
"""Reasons of a node's end that somebody wanted (``NodeDeathInfo``)."""
_REASONS: Mapping[str, DeathCause] = {
    "RAY_KILL": "killed-by-ray",
    "OUT_OF_SCOPE": "finished",
    "REF_DELETED": "finished",
}
_NEVER_BEGAN = frozenset({"constructor", "runtime-env"})
_JOB_STATUS: Mapping[str, DeathCause] = {"SUCCEEDED": "finished", "STOPPED": "stopped"}
STORE = "control store"


class RayDeathWatch:
    """Compares tables of what lives, and asks why who is missing has ended. ``take_table`` and
    ``poll`` are called by one thread."""

    def __init__(
        self,
        store: ControlStoreDeaths,
        tell: Callable[[tuple[RayDeath, ...]], object],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``tell`` gets each death once."""
        self._store, self._tell, self._monotonic = store, tell, monotonic
        self._due = 0.0
        self._table = RayCalls()
        self._actors: dict[str, tuple[RayActor, int]] = {}
        """Missing actors, and how often they were asked for."""
        self._drivers: dict[str, tuple[RayDriver, int]] = {}
        self._said = ""
        self._exits: dict[str, tuple[RayExit, ...]] = {}

    def are_new(self, node_id: str, exits: tuple[RayExit, ...]) -> bool:
        """Whether an agent tells of exits that it had not told before. Called by any thread."""
        known = self._exits.get(node_id, ())
        self._exits[node_id] = exits
        return any(one not in known for one in exits)

    def take_table(self, table: RayCalls) -> None:
        """What lives now."""
        if table.problem:
            return
        living = {actor.id: actor for actor in table.actors}
        jobs = {driver.job for driver in table.drivers}
        for actor in self._table.actors:
            now = living.get(actor.id)
            gone = now is None or (actor.state == "ALIVE" and now.pid != actor.pid)
            if gone and len(self._actors) < MOST_AT_ONCE:
                self._actors.setdefault(actor.id, (actor, 0))
        for driver in self._table.drivers:
            if driver.job not in jobs:
                self._drivers.setdefault(driver.job, (driver, 0))
        self._table = table

    def poll(self) -> None:
        """Ask for those that are missing, if any are."""
        if not (self._actors or self._drivers) or self._monotonic() < self._due:
            return
        found, told, problem = list[RayDeath](), set[str](), ""
        try:
            for death in self._store.deaths(self._actors, self._drivers):
                found.append(death)
                told.add(death.id)
        except UnreachableError as error:
            problem = f"Ray's control store cannot be asked for deaths: {error}"
            self._due = self._monotonic() + AWAY_SECONDS
        if problem and problem != self._said:
            log.warning("%s", problem)
        self._said = problem
        self._actors = _again(self._actors, told)
        self._drivers = _again(self._drivers, told)
        if found:
            self._tell(tuple(sorted(found, key=_when)))


def _when(death: RayDeath) -> float:
    return death.at


def _again(asked: Mapping[str, tuple[Any, int]], told: Collection[str]) -> dict[str, Any]:
    """Those to ask for once more."""
    return {
        key: (one, tries + 1)
        for key, (one, tries) in asked.items()
        if key not in told and tries + 1 < TRIES
    }


class ControlStoreDeaths:
    """What the store tells of those that have ended. Used by one thread."""

    def __init__(self, store: RayStore) -> None:
        self._store = store

    def deaths(
        self,
        actors: Mapping[str, tuple[RayActor, int]],
        drivers: Mapping[str, tuple[RayDriver, int]],
    ) -> Iterator[RayDeath]:
        """What the store knows of those, by the ids of actors and jobs; each with how often it was
        asked for. Who is not known to be dead is left out. Raises UnreachableError."""
        entries = self._job_entries({actor.job for actor, _ in actors.values()} | drivers.keys())
        for job, (driver, tries) in drivers.items():
            entry = entries.get(job)
            if entry is not None and entry.is_dead:
                yield from self._driver(entry, driver, tries, actors.keys())
        for id_, (actor, _) in actors.items():
            job_entry = entries.get(actor.job)
            driver_id = id_of(job_entry.driver_address.worker_id) if job_entry is not None else ""
            if death := actor_death(self._actor_entry(id_), actor, driver_id):
                yield death

    def _job_entries(self, wanted: Collection[str]) -> dict[str, Any]:
        reply = self._store.ask("JobInfo", "GetAllJobInfo")
        return {id_of(e.job_id): e for e in reply.job_info_list if id_of(e.job_id) in wanted}

    def _actor_entry(self, id_: str) -> Any:
        reply = self._store.ask("ActorInfo", "GetActorInfo", actor_id=bytes.fromhex(id_))
        return reply.actor_table_data

    def _driver(
        self, job: Any, driver: RayDriver, tries: int, asked: Collection[str]
    ) -> Iterator[RayDeath]:
        """The driver's death, after those of actors whose failure may have ended it. ``asked``:
        actors that are asked for by themselves."""
        worker = self._worker(job.driver_address.worker_id)
        death = driver_death(job, worker, driver)
        if death is None:
            if tries < SUBMISSION_TRIES:
                return
            death = _of_driver(job, driver, "unknown", "")
        if death.cause == "exception":
            yield from self._unseen(job, driver, asked)
            said = _traceback(worker)
            failed, echoes = self._failed_call(job.job_id)
            # The first of what an actor's end or a lost object has brought down is no call; else
            # there is one: by its own traceback a call has told the driver.
            by_no_call = echoes and not any(map(follows_from_a_call, echoes))
            most = CALL_TRIES if by_no_call else FIRST_TRIES
            if failed is None and _OF_A_CALL in said and tries < most:
                return
            if failed is not None and (not said or _raised_at_get(failed) in said):
                call = self._with_pid(failed_call(failed, driver), failed.state_updates.worker_id)
                yield call
                death = msgspec.structs.replace(death, detail=call.detail or death.detail)
            elif failed is None and echoes and _OF_A_CALL in said:
                # Its own traceback ends in Ray; nobody else says what it was told.
                detail = failure_of(echoes[0].state_updates.error_info)
                death = msgspec.structs.replace(death, detail=detail or death.detail)
        yield death

    def _worker(self, worker_id: bytes) -> Any | None:
        reply = self._store.ask("WorkerInfo", "GetWorkerInfo", worker_id=worker_id)
        return reply.worker_table_data if reply.HasField("worker_table_data") else None

    def _with_pid(self, death: RayDeath, worker_id: bytes) -> RayDeath:
        """A worker that is killed in its call had no time to tell the pid with it."""
        worker = self._worker(worker_id) if worker_id and not death.pid else None
        return death if worker is None else msgspec.structs.replace(death, pid=worker.pid)

    def _unseen(self, job: Any, driver: RayDriver, asked: Collection[str]) -> Iterator[RayDeath]:
        """Actors of a job that never began to work: they end too soon for a table that is looked at
        every two seconds."""
        reply = self._store.ask(
            "ActorInfo",
            "GetAllActorInfo",
            limit=MOST_DEAD,
            filters={"state": "DEAD", "job_id": job.job_id},
        )
        for entry in reply.actor_table_data:
            if id_of(entry.actor_id) not in asked:
                death = unseen_death(entry, driver)
                if death is not None and death.cause in _NEVER_BEGAN:
                    yield death

    def _failed_call(self, job: bytes) -> tuple[Any | None, list[Any]]:
        """The call of an actor or a task that failed first: by an exception of its own, or, of a
        task that is not tried again, with its worker. And those that failed by another's."""
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
        failed = failures(reply)
        echoes = [one for one in failed if follows_from_another(one)]
        found = [one for one in failed if one not in echoes][:MOST_TRIED]
        left: list[Any] = []
        for one in found:
            last = one if _error_of(one) == _RAISED_ITSELF else self._last(one)
            if last.attempt_number <= one.attempt_number:
                return one, echoes
            left.append(last)
        # Of a task that leaves by sys.exit() the last attempt counts as finished, and only who
        # waits for it is told that its worker died.
        told = any(map(follows_from_a_call, echoes))
        return next((one for one in left if told and has_left(one)), None), echoes

    def _last(self, event: Any) -> Any:
        """The last attempt of the task that is known."""
        same = [{"predicate": "EQUAL", "task_id": event.task_id}]
        reply = self._store.ask(
            "TaskInfo", "GetTaskEvents", limit=MOST_FAILED, filters={"task_filters": same}
        )
        return max((event, *reply.events_by_task), key=lambda one: int(one.attempt_number))


def failures(reply: Any) -> list[Any]:
    """The calls that failed by an exception of their own, or with their workers, of a
    ``GetTaskEventsReply``, the first first: what fails because of another fails later."""
    from ray.core.generated import common_pb2

    failed = common_pb2.TaskStatus.Value("FAILED")
    own = [event for event in reply.events_by_task if _error_of(event) in _FAILURES]
    return sorted(own, key=lambda e: e.state_updates.state_ts_ns.get(failed, 0))


def follows_from_another(event: Any) -> bool:
    """Whether a call failed because Ray told it of another's failure, or of somebody's end."""
    return (
        _error_of(event) == _RAISED_ITSELF
        and _OF_ANOTHER.search(event.state_updates.error_info.error_message) is not None
    )


def follows_from_a_call(event: Any) -> bool:
    """Whether what it was told of began with a call: the innermost, which Python writes last."""
    told = [*_OF_ANOTHER.finditer(event.state_updates.error_info.error_message)]
    return bool(told) and told[-1]["call"] is not None


def has_left(event: Any) -> bool:
    """Whether an attempt has ended, and by no failure of which Ray tells."""
    from ray.core.generated import common_pb2

    finished = common_pb2.TaskStatus.Value("FINISHED")
    return finished in event.state_updates.state_ts_ns and not _error_of(event)


def _raised_at_get(event: Any) -> str:
    """The code in Ray by which a driver that waits for a call is told of its failure."""
    return _OF_A_CALL if _error_of(event) == _RAISED_ITSELF else _OF_A_WORKER


def _error_of(event: Any) -> str:
    """Ray's word; of an actor's call that its worker's end failed none: the actor tells why."""
    update = event.state_updates
    if not update.HasField("error_info"):
        return ""
    error = enum_name(update.error_info, "error_type")
    return error if error == _RAISED_ITSELF or not event.task_info.actor_id else ""


def actor_death(entry: Any, actor: RayActor, driver_id: str) -> RayDeath | None:
    """Of an ``ActorTableData``; None while it is not dead, nor begun again. ``actor``: as it was
    when it lived; ``driver_id``: the worker id of its job's driver, in hex."""
    restarts = entry.num_restarts > 0 and not entry.end_time
    if not entry.end_time and not restarts:
        return None
    cause, detail = actor_cause(entry.death_cause, driver_id)
    return RayDeath(
        what="actor",
        id=actor.id,
        job=actor.job,
        label=actor.label,
        role=actor.kind,
        node=actor.node or id_of(entry.address.node_id),
        address=_cut(entry.address.ip_address),
        pid=actor.pid or entry.pid,
        at=entry.end_time / 1000 or time.time(),
        cause=cause,
        detail=detail,
        witness=STORE,
        restarts=restarts,
    )


def unseen_death(entry: Any, driver: RayDriver) -> RayDeath | None:
    """Of an ``ActorTableData`` that was in no table of those that live: its number is not known."""
    kind = class_name(entry)
    actor = RayActor(id=id_of(entry.actor_id), job=driver.job, kind=kind, name=cut(entry.name))
    death = actor_death(entry, actor, "")
    return death and msgspec.structs.replace(death, label=actor.name or kind)


def actor_cause(death: Any, driver_id: str) -> tuple[DeathCause, str]:
    """Cause and detail of an ``ActorDeathCause``."""
    kind = death.WhichOneof("context")
    if kind == "creation_task_failure_context":
        said = death.creation_task_failure_context.formatted_exception_string
        return "constructor", last_line(said)
    if kind == "runtime_env_failed_context":
        return "runtime-env", last_line(death.runtime_env_failed_context.error_message)
    if kind == "oom_context":
        return "oom-ray", _first_line(death.oom_context.error_message)
    if kind != "actor_died_error_context":
        return "unknown", ""
    context = death.actor_died_error_context
    reason = enum_name(context, "reason")
    if reason in _REASONS:
        return _REASONS[reason], _first_line(context.error_message)
    if reason == "OWNER_DIED":
        owner = _OWNER.search(context.error_message)
        of_driver = owner is not None and owner[1] == driver_id
        return ("driver-ended" if of_driver else "owner-ended"), _exit_detail(context.error_message)
    if reason == "NODE_DIED":
        info = context.node_death_info
        planned = enum_name(info, "reason") in _PLANNED
        return ("node-drained" if planned else "node-lost"), _first_line(info.reason_message)
    return _worker_cause(context.error_message)


def _worker_cause(said: str) -> tuple[DeathCause, str]:
    """Of an actor whose worker has ended, by Ray's message."""
    found = _EXIT_TYPE.search(said)
    kind, detail = found[1] if found else "", _exit_detail(said)
    if kind == "NODE_OUT_OF_MEMORY":
        return "oom-ray", detail
    if kind == "USER_ERROR":
        return ("constructor" if "initialization method" in said else "exception"), detail
    # Of a worker that is in a call, Ray says that its user wanted it.
    if kind in _INTENDED and "its job has" in detail:
        return "driver-ended", detail
    if "exit_actor() is called" in said or kind == "INTENDED_SYSTEM_EXIT":
        return "finished", detail
    if status := _STATUS.search(detail):
        return "exited", f"exited with status {status[1]}"
    if kind in _INTENDED:
        return "exited", detail
    if "SIGTERM" in detail:
        return "signal", "killed by SIGTERM"
    return ("signal" if kind == "SYSTEM_ERROR" else "unknown"), detail


def driver_death(job: Any, worker: Any | None, driver: RayDriver) -> RayDeath | None:
    """Of a ``JobTableData`` whose driver has ended and its ``WorkerTableData``, which may be
    missing; None while a submitted job has no status yet."""
    if job.HasField("job_info"):
        status = job.job_info.status
        if status in _JOB_STATUS:
            return _of_driver(job, driver, _JOB_STATUS[status], job.job_info.message)
        if status != "FAILED":
            return None
    if traceback := _traceback(worker):
        found = _of_driver(job, driver, "exception", raised_at(traceback))
        # Of a submitted job Ray would say that it was stopped.
        proven = job.HasField("job_info") or bool(_RAISED.search(found.detail))
        return msgspec.structs.replace(found, is_proven=proven)
    if worker is None:
        return _of_driver(job, driver, "unknown", "")
    kind = enum_name(worker, "exit_type")
    if kind in _INTENDED:
        return _of_driver(job, driver, "finished", worker.exit_detail)
    cause: DeathCause = "oom-ray" if kind == "NODE_OUT_OF_MEMORY" else "signal"
    return _of_driver(job, driver, cause, worker.exit_detail)


def _of_driver(job: Any, driver: RayDriver, cause: DeathCause, detail: str) -> RayDeath:
    return RayDeath(
        what="driver",
        id=driver.job,
        job=driver.job,
        label="driver",
        role="driver",
        address=driver.address,
        pid=driver.pid,
        at=job.end_time / 1000 or time.time(),
        cause=cause,
        detail=_first_line(detail),
        witness=STORE,
    )


def failed_call(event: Any, driver: RayDriver) -> RayDeath:
    """An actor or a task whose failure ended the driver."""
    info, update = event.task_info, event.state_updates
    method = _cut(info.name or info.func_or_class_name)
    role = method.rpartition(".")[0] or "task"
    cause = "exited" if has_left(event) else _FAILURES.get(_error_of(event), "exception")
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
        # Of the end of a worker Ray tells how it was noticed.
        detail={"signal": "", "exited": IN_CALL}.get(cause, failure_of(update.error_info)),
        witness=STORE,
    )


def failure_of(info: Any) -> str:
    """The last line of what a failed call said, of a ``RayErrorInfo``."""
    return last_line(info.error_message)


def _traceback(worker: Any | None) -> str:
    if worker is None:
        return ""
    said = worker.worker_info.get("exception", b"")
    return said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)


def raised_at(traceback: str) -> str:
    """The innermost place of a traceback whose last line, the exception, Ray does not keep.

    >>> raised_at('  File "rl.py", line 7, in loop\\n    raise ValueError(step)\\n')
    'raise ValueError(step) (File "rl.py", line 7, in loop)'
    """
    lines = [line.strip() for line in traceback.splitlines() if line.strip(" ^~\t")]
    places = [at for at, line in enumerate(lines) if line.startswith("File ")]
    if not places:
        return _first_line(traceback)
    code = " ".join(lines[places[-1] + 1 : places[-1] + 2])
    place = lines[places[-1]]
    return _cut(f"{code} ({place})" if code else place)


def last_line(text: str) -> str:
    """The last line that is no address of a frame.

    >>> last_line("Traceback (most recent call last):\\n  File 'a'\\nValueError: no model\\n")
    'ValueError: no model'
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return _cut(lines[-1]) if lines else ""


def _exit_detail(said: str) -> str:
    found = _EXIT_DETAIL.search(said)
    return _cut(found[1].strip()) if found else _first_line(said)


def _first_line(text: str) -> str:
    return _cut(next((line.strip() for line in text.splitlines() if line.strip()), ""))


def _cut(text: str) -> str:
    return clean(text[:MOST_DETAIL])[:MOST_DETAIL]

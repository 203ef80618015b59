"""Why actors and drivers of Ray jobs ended, from Ray's control store once they are gone.

The store keeps a cause with each dead actor, an exit type with each dead worker, and for a driver
the traceback that Ray's excepthook sent (``custom_excepthook`` in ``ray/_private/worker.py``).
Causes: ``ActorDeathCause`` in ``common.proto``; their texts: ``gcs_actor_manager.cc`` of Ray 2.60.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.actors.coordinator.ray.failed_calls import (
    INTENDED,
    STORE,
    FailedCalls,
    failed_call,
    failure_of,
    follows_from_a_call,
    follows_from_a_worker,
    may_show_failure,
    may_show_lost_worker,
    shows_failed_call,
)
from ray_sentinel.actors.coordinator.ray.replies import class_name, cut, enum_name, id_of
from ray_sentinel.actors.coordinator.ray.said import cut_line, first_line, last_line, raised_at
from ray_sentinel.actors.coordinator.ray.store import RayStore
from ray_sentinel.errors import UnreachableError
from ray_sentinel.model.progress import RayExit
from ray_sentinel.model.ray_calls import RayActor, RayCalls, RayDriver
from ray_sentinel.model.ray_deaths import DeathCause, RayDeath

log = logging.getLogger(__name__)

MOST_AT_ONCE = 200
"""Most dead actors that are asked for one by one; if more vanish at once, the rest is not reported.
"""
MOST_DEAD = 2000
"""Most dead actors that are examined in a job whose driver has failed."""
TRIES = 6
"""How often the store is asked for a death that it does not know yet."""
AWAY_SECONDS = 10.0
"""Seconds between two questions while the store does not answer."""
CALL_TRIES = 2
"""How many tries a driver's end waits for the call that failed; workers report these late."""
FIRST_TRIES = 5
"""How many tries it waits where another call is known to have failed first, but not which."""
SUBMISSION_TRIES = 4
"""How many tries the end of a submitted job waits for its status, which is written after it."""

_OWNER = re.compile(r"Owner Id: ([0-9a-f]+)")
_EXIT_TYPE = re.compile(r"Worker exit type: ([A-Z_]+)")
_EXIT_DETAIL = re.compile(r"Worker exit detail: (.*)")
_STATUS = re.compile(r"exit code (\d+)\.")
_RAISED = re.compile(r"^(raise|assert)\b")
"""Lines of code that raise by themselves, so no Ctrl-C interrupted them."""
_PLANNED = frozenset(
    {"EXPECTED_TERMINATION", "AUTOSCALER_DRAIN_PREEMPTED", "AUTOSCALER_DRAIN_IDLE"}
)
"""Intended reasons of a node's end (``NodeDeathInfo``)."""
_REASONS: Mapping[str, DeathCause] = {
    "RAY_KILL": "killed-by-ray",
    "OUT_OF_SCOPE": "finished",
    "REF_DELETED": "finished",
}
_NEVER_BEGAN = frozenset({"constructor", "runtime-env"})
_JOB_STATUS: Mapping[str, DeathCause] = {"SUCCEEDED": "finished", "STOPPED": "stopped"}


class RayDeathWatch:
    """Compares tables of what lives, and queries why a missing process has ended. ``set_table``
    and ``poll`` are called by one thread."""

    def __init__(
        self,
        store: ControlStoreDeaths,
        tell: Callable[[tuple[RayDeath, ...]], object],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``tell`` is called once for each death."""
        self._store, self._tell, self._monotonic = store, tell, monotonic
        self._due = 0.0
        self._table = RayCalls()
        self._actors: dict[str, tuple[RayActor, int]] = {}
        """Missing actors, each with how often it was asked for."""
        self._drivers: dict[str, tuple[RayDriver, int]] = {}
        self._said = ""
        self._exits: dict[str, tuple[RayExit, ...]] = {}

    def are_new(self, node_id: str, exits: tuple[RayExit, ...]) -> bool:
        """Whether an agent reports exits that it had not reported before. Called by any thread."""
        known = self._exits.get(node_id, ())
        self._exits[node_id] = exits
        return any(one not in known for one in exits)

    def set_table(self, table: RayCalls) -> None:
        """Set what lives now."""
        if table.problem:
            return
        living = {actor.id: actor for actor in (*table.actors, *table.outliving)}
        jobs = {driver.job for driver in table.drivers}
        for actor in (*self._table.actors, *self._table.outliving):
            now = living.get(actor.id)
            gone = now is None or (actor.state == "ALIVE" and now.pid != actor.pid)
            if gone and len(self._actors) < MOST_AT_ONCE:
                self._actors.setdefault(actor.id, (actor, 0))
        for driver in self._table.drivers:
            if driver.job not in jobs:
                self._drivers.setdefault(driver.job, (driver, 0))
        self._table = table

    def poll(self) -> None:
        """Query those that are missing, if any are."""
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
    """The missing processes that are asked for again."""
    return {
        key: (one, tries + 1)
        for key, (one, tries) in asked.items()
        if key not in told and tries + 1 < TRIES
    }


class ControlStoreDeaths:
    """Reads ended processes from the store. Used by one thread."""

    def __init__(self, store: RayStore) -> None:
        self._store = store
        self._calls = FailedCalls(store)

    def deaths(
        self,
        actors: Mapping[str, tuple[RayActor, int]],
        drivers: Mapping[str, tuple[RayDriver, int]],
    ) -> Iterator[RayDeath]:
        """The deaths that the store knows of these actors and drivers, given by their ids and those
        of their jobs, each with how often it was asked for. Those not known to be dead are left
        out. Raises UnreachableError."""
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
        """The driver's death, after those of actors whose failure may have ended it. ``asked`` are
        actors that are asked for individually."""
        worker = self._calls.worker(job.driver_address.worker_id)
        death = driver_death(job, worker, driver)
        if death is None:
            if tries < SUBMISSION_TRIES:
                return
            death = _of_driver(job, driver, "unknown", "")
        if death.cause == "exception":
            yield from self._unseen(job, driver, asked)
            calls = self._failed_calls(job, driver, _traceback(worker), tries)
            if calls is None:
                return
            yield from calls[0]
            death = msgspec.structs.replace(death, detail=calls[1] or death.detail)
        yield death

    def _failed_calls(
        self, job: Any, driver: RayDriver, said: str, tries: int
    ) -> tuple[list[RayDeath], str] | None:
        """The calls that ended a driver, judged by its traceback, and what they told it; None while
        they may still be reported."""
        until = job.end_time / 1000 or time.time()
        failed, echoes = self._calls.first(job.job_id, until)
        if failed is not None and may_show_failure(said, failed):
            call = self._calls.with_pid(failed_call(failed, driver), failed.state_updates.worker_id)
            return [call], call.detail
        if may_show_lost_worker(said, echoes):
            unknown = tries >= CALL_TRIES and any(map(follows_from_a_worker, echoes))
            if lost := self._calls.lost_workers(driver, until, unknown=unknown):
                return lost, ""
        if failed is not None or not shows_failed_call(said):
            return [], ""
        # What an actor's end or a lost object brings down begins with no call. Otherwise there is a
        # call that failed first: the driver's traceback says that a call has told it.
        by_no_call = echoes and not any(map(follows_from_a_call, echoes))
        if tries < (CALL_TRIES if by_no_call else FIRST_TRIES):
            return None
        # Its own traceback ends in Ray; nothing else shows what it was told.
        return [], failure_of(echoes[0]) if echoes else ""

    def _unseen(self, job: Any, driver: RayDriver, asked: Collection[str]) -> Iterator[RayDeath]:
        """Actors of a job that never began to work: they end too soon for a table that is read only
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


def actor_death(entry: Any, actor: RayActor, driver_id: str) -> RayDeath | None:
    """The death in an ``ActorTableData``; None while the actor lives, or has been started again.
    ``actor`` is as it was while it lived; ``driver_id`` is the worker id of its job's driver, in
    hex."""
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
        address=cut_line(entry.address.ip_address),
        pid=actor.pid or entry.pid,
        at=entry.end_time / 1000 or time.time(),
        cause=cause,
        detail=detail,
        witness=STORE,
        restarts=restarts,
    )


def unseen_death(entry: Any, driver: RayDriver) -> RayDeath | None:
    """The death in an ``ActorTableData`` of an actor that was in no table of living actors: its
    number is unknown."""
    kind = class_name(entry)
    actor = RayActor(id=id_of(entry.actor_id), job=driver.job, kind=kind, name=cut(entry.name))
    death = actor_death(entry, actor, "")
    return death and msgspec.structs.replace(death, label=actor.name or kind)


def actor_cause(death: Any, driver_id: str) -> tuple[DeathCause, str]:
    """Cause and detail from an ``ActorDeathCause``."""
    kind = death.WhichOneof("context")
    if kind == "creation_task_failure_context":
        said = death.creation_task_failure_context.formatted_exception_string
        return "constructor", last_line(said)
    if kind == "runtime_env_failed_context":
        return "runtime-env", last_line(death.runtime_env_failed_context.error_message)
    if kind == "oom_context":
        return "oom-ray", first_line(death.oom_context.error_message)
    if kind != "actor_died_error_context":
        return "unknown", ""
    context = death.actor_died_error_context
    reason = enum_name(context, "reason")
    if reason in _REASONS:
        return _REASONS[reason], first_line(context.error_message)
    if reason == "OWNER_DIED":
        owner = _OWNER.search(context.error_message)
        of_driver = owner is not None and owner[1] == driver_id
        return ("driver-ended" if of_driver else "owner-ended"), _exit_detail(context.error_message)
    if reason == "NODE_DIED":
        info = context.node_death_info
        planned = enum_name(info, "reason") in _PLANNED
        return ("node-drained" if planned else "node-lost"), first_line(info.reason_message)
    return _worker_cause(context.error_message)


def _worker_cause(said: str) -> tuple[DeathCause, str]:
    """Cause and detail for an actor whose worker has ended, from Ray's message."""
    found = _EXIT_TYPE.search(said)
    kind, detail = found[1] if found else "", _exit_detail(said)
    if kind == "NODE_OUT_OF_MEMORY":
        return "oom-ray", detail
    if kind == "USER_ERROR":
        return ("constructor" if "initialization method" in said else "exception"), detail
    # If the worker is in a call, Ray says that the end was intended by its user.
    if kind in INTENDED and "its job has" in detail:
        return "driver-ended", detail
    if "exit_actor() is called" in said or kind == "INTENDED_SYSTEM_EXIT":
        return "finished", detail
    if status := _STATUS.search(detail):
        return "exited", f"exited with status {status[1]}"
    if kind in INTENDED:
        return "exited", detail
    if "SIGTERM" in detail:
        return "signal", "killed by SIGTERM"
    return ("signal" if kind == "SYSTEM_ERROR" else "unknown"), detail


def driver_death(job: Any, worker: Any | None, driver: RayDriver) -> RayDeath | None:
    """The death from a ``JobTableData`` whose driver has ended and its ``WorkerTableData``, which
    may be missing; None while a submitted job has no status yet."""
    if job.HasField("job_info"):
        status = job.job_info.status
        if status in _JOB_STATUS:
            return _of_driver(job, driver, _JOB_STATUS[status], job.job_info.message)
        if status != "FAILED":
            return None
    if traceback := _traceback(worker):
        found = _of_driver(job, driver, "exception", raised_at(traceback))
        # For a submitted job, Ray would say if it was stopped.
        proven = job.HasField("job_info") or bool(_RAISED.search(found.detail))
        return msgspec.structs.replace(found, is_proven=proven)
    if worker is None:
        return _of_driver(job, driver, "unknown", "")
    kind = enum_name(worker, "exit_type")
    if kind in INTENDED:
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
        detail=first_line(detail),
        witness=STORE,
    )


def _traceback(worker: Any | None) -> str:
    if worker is None:
        return ""
    said = worker.worker_info.get("exception", b"")
    return said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)


def _exit_detail(said: str) -> str:
    found = _EXIT_DETAIL.search(said)
    return cut_line(found[1].strip()) if found else first_line(said)

"""The unfinished calls of Ray's jobs, from its control store.

Workers report their calls to the store about once a second, and it drops the oldest: a call that it
does not list may still exist.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any, cast

import msgspec

from ray_sentinel.actors.coordinator.ray import replies as ray_replies
from ray_sentinel.actors.coordinator.ray.failed_calls import MOST_FAILED, last_failures
from ray_sentinel.actors.coordinator.ray.holders import Held, placement_of
from ray_sentinel.actors.coordinator.ray.store import RayStore
from ray_sentinel.actors.coordinator.ray.unstarted import MOST_NODES, short_of_memory
from ray_sentinel.actors.coordinator.ray.wakers import wakers_of
from ray_sentinel.engine.telemetry.inference import deployment_of
from ray_sentinel.errors import UnreachableError
from ray_sentinel.model.placement import PlacedGroup, Placement
from ray_sentinel.model.ray_calls import (
    CallWaker,
    EndedCalls,
    FailedCall,
    PendingGroup,
    RayActor,
    RayCall,
    RayCalls,
    RayDriver,
    going_on,
)
from ray_sentinel.waitgraph.group_needs import group_need
from ray_sentinel.waitgraph.job_processes import creation_id

MOST_CALLS = 10_000
MOST_ACTORS = 10_000
MOST_LENDERS = 10
"""Most other jobs that are asked for the calls of one."""
MOST_CLASSES = 50
"""Most classes whose actors are numbered in the order in which they were requested; the others' are
numbered in the order of their starts."""
TRIES = 5
"""How often Ray is asked when an actor was requested: workers report it late, and the store
forgets."""
UNTOLD_SECONDS = 3.0
"""Seconds within which a worker that got a task has reported that it runs it."""
MOST_UNTOLD = 50
"""Most tasks, and most actors, whose workers are asked for."""
UNPLACED_SECONDS = 10.0
"""Seconds of waiting after which Ray is asked why something is not placed."""
_AUTOSCALER = b"__autoscaling_status"
"""The key under which Ray's monitor writes what it does (``DEBUG_AUTOSCALING_STATUS``)."""
_LIVING = ("ALIVE", "PENDING_CREATION", "DEPENDENCIES_UNREADY", "RESTARTING")
_ENDED = ("FINISHED", "FAILED")
_UNPLACED = ("PENDING_ARGS_AVAIL", "PENDING_NODE_ASSIGNMENT")
_WAITING = (*_UNPLACED, "SUBMITTED_TO_WORKER", "PENDING_ACTOR_TASK_ORDERING_OR_CONCURRENCY")


def unfinished_calls(
    address: str, job: str = "", *, times: bool = False, deployments: Collection[str] = ()
) -> RayCalls:
    """What the control store at ``address`` (HOST:PORT) knows now; the calls are those of one job
    where ``job`` (Ray's id, in hex) is given. ``times``: also how long ended calls took.
    ``deployments``: those of Ray Serve, by their job names, whose replicas are among the actors
    although their job has ended.

    A part that it does not answer, or that this version of Ray does not have, is named in
    ``problem`` and left out.
    """
    with RayStore(address) as store:
        now = time.time()
        return ControlStoreCalls(store).fetch(now, job, times=times, deployments=deployments)


class _Times(msgspec.Struct, frozen=True, kw_only=True):
    """What calls tell that have ended successfully."""

    took: dict[str, EndedCalls] = {}
    changes: tuple[int, ...] = ()
    wakers: tuple[CallWaker, ...] = ()


class ControlStoreCalls:
    """Reads drivers, actors, groups and calls from the store. Used by one thread."""

    def __init__(self, store: RayStore) -> None:
        self._store = store
        self._problems: list[str] = []
        self._made_at: dict[bytes, float] = {}
        """When actors were requested, by the id of their creation: that does not change."""
        self._missed: dict[bytes, int] = {}
        """How often each of these times was requested in vain."""
        self._known = RayCalls()
        self._all_groups: Any = None
        """The newest reply about placement groups."""

    def table(self, at: float) -> RayCalls:
        """The drivers, the living actors and the groups that are not placed; no calls. ``at`` is
        Unix time. A part that is not reported keeps its previous value, and ``problem`` names
        it."""
        self._problems.clear()
        old = self._known
        drivers, jobs = self._asked("jobs", self._drivers, (old.drivers, None))
        known = {driver.job for driver in drivers}
        actors = self._asked("actors", self._actors, (*old.actors, *old.outliving))
        there = bool(drivers or actors)
        groups = self._asked("placement groups", self._groups, old.groups) if there else ()
        theirs, ended = {actor.job for actor in actors} - known, old.ended_drivers
        if jobs is None:  # those that are new may have a driver
            theirs &= {actor.job for actor in old.outliving}
        else:
            told = partial(ray_replies.ended_drivers_of, jobs, theirs)
            ended = self._asked("ended jobs", lambda: tuple(told()), ended)
        self._known = RayCalls(
            at=at,
            drivers=drivers,
            actors=tuple(actor for actor in actors if actor.job in known),
            ended_drivers=ended,
            outliving=tuple(actor for actor in actors if actor.job in theirs),
            groups=groups,
            problem="; ".join(self._problems),
        )
        return self._known

    def fetch(
        self,
        at: float,
        job: str = "",
        *,
        times: bool = False,
        deployments: Collection[str] = (),
    ) -> RayCalls:
        """The table with the calls that have not ended, of all jobs or one, and the free resources;
        with ``times`` also how long those that ended successfully took. Of the actors whose jobs
        have ended, it has those that were called, and replicas of the ``deployments``. What a job
        calls of another job's actors, and what these call for it, is among its calls, although Ray
        files it under the actors' job."""
        table = self.table(at)
        # Where no driver lives, the actors that go on are all that there is; else what is called
        # of them belongs to who calls.
        theirs = () if table.drivers else {driver.job for driver in table.ended_drivers}
        table = going_on(table, {job} if job else theirs)
        known = {driver.job for driver in table.drivers}
        calls, left_off = self._asked("calls", lambda: self._calls(job), ((), 0))
        for lender in self._lenders(job):
            theirs, _ = self._asked("calls", partial(self._calls, lender), ((), 0))
            calls += theirs
        calls = tuple(_by_makers(calls, {job} if job else known, table.actors))
        calls = self._asked("workers", lambda: tuple(self._with_workers(calls, at)), calls)
        called = {call.actor for call in calls if call.job in known}
        outliving = (
            actor
            for actor in table.outliving
            if actor.id in called or deployment_of(actor.kind) in deployments
        )
        actors = tuple(self._with_pids((*table.actors, *outliving)))
        calls = (*calls, *_begun_again(actors, calls))
        living = {actor.id for actor in actors}
        free_on = self._asked("free resources", self._free, {})
        waits = [one.since for one in table.groups if one.job == job or not job]
        waits += [call.since for call in calls if call.state == "unplaced"]
        late = any(since is not None and at - since > UNPLACED_SECONDS for since in waits)
        unplaced = [call for call in calls if call.state == "unplaced"]
        placed = self._placed(unplaced)
        lent = {actor.job for actor in actors if job and actor.id in called and actor.job != job}
        told = self._times(job, lent, calls) if times else _Times()
        failed = self._asked("failed calls", lambda: self._failed(job, at), ()) if times else ()
        labels = {key for call in unplaced for one in call.selectors for key in one}
        labels |= {key for group in table.groups for one in group.selectors for key in one}
        return msgspec.structs.replace(
            table,
            actors=actors,
            ended_drivers=(),
            outliving=(),
            placed=placed,
            calls=tuple(
                call
                for call in calls
                if call.job in known and (call.kind != "actor-task" or call.actor in living)
            ),
            free_on=free_on,
            placement=self._placement(free_on, placed, labels, unplaced) if late else None,
            ended=told.took,
            changes=told.changes,
            wakers=told.wakers,
            failed=failed,
            left_off=left_off,
            problem="; ".join(self._problems),
        )

    def _times(self, job: str, lenders: Iterable[str], calls: tuple[RayCall, ...]) -> _Times:
        """What ended calls tell; of the lenders, other jobs whose actors were called, only the
        names that were called count."""
        found = self._ended(job, calls)
        names = {call.name for call in calls if call.kind == "actor-task"}
        for lender in lenders:
            lent = self._ended(lender, calls)
            took = {name: lent.took[name] for name in names & lent.took.keys()}
            found = msgspec.structs.replace(
                found, took=took | found.took, wakers=(*found.wakers, *lent.wakers)
            )
        return found

    def _ended(
        self, job: str, calls: tuple[RayCall, ...] = (), lenders: Collection[str] = ()
    ) -> _Times:
        finished = [{"predicate": "EQUAL", "state": "FINISHED"}]

        def read() -> _Times:
            reply = self._made_by(job, lenders, finished)
            return _Times(
                took=ray_replies.ended_of(reply),
                changes=ray_replies.changes_of(reply),
                wakers=wakers_of(reply, calls),
            )

        return cast("_Times", self._asked("ended calls", read, _Times()))

    def ended(
        self, job: str, lenders: Collection[str] = ()
    ) -> tuple[dict[str, EndedCalls], tuple[int, ...]]:
        """The calls of a job (Ray's id, in hex), or of all, that ended successfully, by name, with
        those that it has made to actors of the ``lenders``, other jobs; and the last whole Unix
        seconds in which any of them began or ended. Both are empty if Ray does not report them."""
        found = self._ended(job, lenders=lenders)
        return found.took, found.changes

    def running(self, job: str, lenders: Collection[str] = ()) -> tuple[RayCall, ...]:
        """The calls of a job (Ray's id, in hex) that are running, also at actors of the
        ``lenders``; empty if Ray does not report them."""
        others = [{"predicate": "NOT_EQUAL", "state": state} for state in (*_ENDED, *_WAITING)]
        found = self._asked(
            "running calls",
            lambda: ray_replies.calls_of(self._made_by(job, lenders, others)),
            (),
        )
        return cast("tuple[RayCall, ...]", found)

    def _made_by(self, job: str, lenders: Collection[str], states: list[dict[str, Any]]) -> Any:
        """The calls in some states of a job, or of all; with those that it has made to actors of
        the lenders, under whose jobs Ray files them."""
        reply = self._events(MOST_CALLS, state_filters=states, job_filters=_of_job(job))
        for lender in lenders:
            lent = self._events(MOST_CALLS, state_filters=states, job_filters=_of_job(lender))
            reply.events_by_task.extend(ray_replies.made_in(lent, job))
        return reply

    def _asked(self, what: str, ask: Callable[[], Any], nothing: Any) -> Any:
        try:
            return ask()
        except (UnreachableError, AttributeError, TypeError, ValueError, LookupError) as error:
            # Another version of Ray may lack what we look for in a reply.
            self._problems.append(f"Ray's control store does not tell its {what}: {error}")
            return nothing

    def _drivers(self) -> tuple[tuple[RayDriver, ...], Any]:
        """The living drivers, and the reply that also tells of those that have ended."""
        reply = self._store.ask("JobInfo", "GetAllJobInfo")
        return ray_replies.drivers_of(reply), reply

    def _groups(self) -> tuple[PendingGroup, ...]:
        self._all_groups = self._store.ask("PlacementGroupInfo", "GetAllPlacementGroup")
        return ray_replies.groups_of(self._all_groups)

    def _placed(self, unplaced: Iterable[RayCall]) -> tuple[PlacedGroup, ...]:
        """The placed groups in which calls wait for room, as last requested."""
        needs = (group_need(call.needs) for call in unplaced)
        wanted = {need.group for need in needs if need is not None}
        if not wanted or self._all_groups is None:
            return ()
        found = self._asked(
            "placed groups", lambda: tuple(ray_replies.placed_of(self._all_groups, wanted)), ()
        )
        return cast("tuple[PlacedGroup, ...]", found)

    def _lenders(self, job: str) -> tuple[str, ...]:
        """The other jobs whose actors a job may call: to be called by others, an actor needs a
        name. None if the calls of all jobs are wanted."""
        actors = (*self._known.outliving, *(actor for actor in self._known.actors if actor.name))
        found = dict.fromkeys(actor.job for actor in actors if job and actor.job != job)
        return tuple(found)[:MOST_LENDERS]

    def _free(self) -> dict[str, dict[str, float]]:
        return ray_replies.free_of(self._store.ask("NodeResourceInfo", "GetAllAvailableResources"))

    def _placement(
        self,
        free_on: dict[str, dict[str, float]],
        placed: tuple[PlacedGroup, ...],
        labels: set[str],
        unplaced: Iterable[RayCall],
    ) -> Placement | None:
        ask = self._store.ask
        roomy = _with_room(free_on, unplaced)
        running = [{"predicate": "NOT_EQUAL", "state": state} for state in (*_ENDED, *_UNPLACED)]

        def holding() -> tuple[Any, ...]:
            states = ("ALIVE", "PENDING_CREATION")
            asked = [{"limit": MOST_ACTORS, "filters": {"state": state}} for state in states]
            replies = [ask("ActorInfo", "GetAllActorInfo", **fields) for fields in asked]
            return tuple(entry for reply in replies for entry in reply.actor_table_data)

        asked = self._asked
        held = Held(
            jobs=asked("ended jobs", lambda: ask("JobInfo", "GetAllJobInfo"), None),
            actors=asked("holding actors", holding, ()),
            groups=self._all_groups,
            running=asked(
                "running tasks", lambda: self._events(MOST_CALLS, state_filters=running), None
            ),
            totals=asked(
                "resources", lambda: ask("NodeResourceInfo", "GetAllTotalResources"), None
            ),
            nodes=asked("nodes", lambda: ask("NodeInfo", "GetAllNodeInfo"), None)
            if labels or roomy
            else None,
            status=asked("autoscaler", self._autoscaler, None),
            cluster_status=self._cluster_status(),
            waiting=frozenset(call.id for call in unplaced),
        )
        found = cast(
            "Placement | None",
            asked(
                "holders of resources", lambda: placement_of(held, free_on, placed, labels), None
            ),
        )
        if found is None or not roomy or held.nodes is None:
            return found
        pages = ray_replies.metrics_urls(held.nodes, roomy)
        return msgspec.structs.replace(found, short_of_memory=short_of_memory(pages))

    def _autoscaler(self) -> bytes:
        known = self._store.ask("InternalKV", "InternalKVExists", key=_AUTOSCALER)
        if not known.exists:
            return b""
        return bytes(self._store.ask("InternalKV", "InternalKVGet", key=_AUTOSCALER).value)

    def _cluster_status(self) -> Any:
        """What the autoscaler of version 2 says; None if this version of Ray has none."""
        try:
            return self._store.ask("AutoscalerState", "GetClusterStatus")
        except UnreachableError:
            return None

    def _actors(self) -> tuple[RayActor, ...]:
        found: list[Any] = []
        for state in _LIVING:
            reply = self._store.ask(
                "ActorInfo", "GetAllActorInfo", limit=MOST_ACTORS, filters={"state": state}
            )
            found += reply.actor_table_data
        entries = [one for one in found if not ray_replies.is_internal(one.ray_namespace)]
        return tuple(ray_replies.actors_of(entries, self._made(entries)))

    def _made(self, entries: Iterable[Any]) -> dict[bytes, float]:
        """When the actors of classes with several actors were requested, by the id of their
        creation: their programs number them in this order."""
        there = {ray_replies.creation_id(entry.actor_id): entry for entry in entries}
        self._made_at = {key: at for key, at in self._made_at.items() if key in there}
        self._missed = {key: tries for key, tries in self._missed.items() if key in there}
        classes = Counter(entry.class_name for entry in entries if not entry.name)
        new = {
            entry.class_name
            for key, entry in there.items()
            if key not in self._made_at and self._missed.get(key, 0) < TRIES
        }
        several = [
            name for name, count in classes.most_common(MOST_CLASSES) if count > 1 and name in new
        ]
        for name in several:
            # Several filters of one kind must all be met, so each class is requested separately.
            wanted = {"predicate": "EQUAL", "task_name": f"{name}.__init__"}
            reply = self._events(MOST_ACTORS, task_name_filters=[wanted])
            self._made_at |= {key: at for key, at in ray_replies.made_at(reply) if key in there}
        for key, entry in there.items():
            if entry.class_name in several and key not in self._made_at:
                self._missed[key] = self._missed.get(key, 0) + 1
        return self._made_at

    def _failed(self, job: str, at: float) -> tuple[FailedCall, ...]:
        failed = [{"predicate": "EQUAL", "state": "FAILED"}]
        reply = self._events(MOST_FAILED, state_filters=failed, job_filters=_of_job(job))
        known = (*self._known.actors, *self._known.outliving)
        labels = {actor.id: actor.label for actor in known}
        return last_failures(reply, at, labels)

    def _calls(self, job: str) -> tuple[tuple[RayCall, ...], int]:
        wanted = [{"predicate": "NOT_EQUAL", "state": state} for state in _ENDED]
        reply = self._events(MOST_CALLS, state_filters=wanted, job_filters=_of_job(job))
        return ray_replies.calls_of(reply), reply.num_truncated

    def _with_workers(self, calls: Iterable[RayCall], at: float) -> Iterator[RayCall]:
        """The calls, with the pids of those tasks whose workers have not reported that they run
        them: a worker that is stopped at once, or holds its GIL, reports nothing."""
        left = MOST_UNTOLD
        for call in calls:
            sent = call.kind == "task" and call.state == "queued" and call.worker and not call.pid
            if not sent or call.since is None or at - call.since < UNTOLD_SECONDS or not left:
                yield call
                continue
            left -= 1
            pid = self._pid(call.worker)
            state = "running" if pid else call.state
            yield msgspec.structs.replace(call, pid=pid, state=state)

    def _with_pids(self, actors: Iterable[RayActor]) -> Iterator[RayActor]:
        """The actors, with the pids of the processes in which Ray starts some of them again."""
        left = MOST_UNTOLD
        for actor in actors:
            if not actor.worker or not left:
                yield actor
                continue
            left -= 1
            pid = self._asked("workers", partial(self._pid, actor.worker), 0)
            yield msgspec.structs.replace(actor, pid=pid)

    def _pid(self, worker: str) -> int:
        reply = self._store.ask("WorkerInfo", "GetWorkerInfo", worker_id=bytes.fromhex(worker))
        return int(reply.worker_table_data.pid)

    def _events(self, most: int, **filters: Any) -> Any:
        return self._store.ask("TaskInfo", "GetTaskEvents", limit=most, filters=filters)


def _with_room(free_on: dict[str, dict[str, float]], calls: Iterable[RayCall]) -> set[str]:
    """The ids of some nodes that have free what one of the calls needs."""
    wanted = [call.needs for call in calls]
    found = (
        node
        for node, free in free_on.items()
        if any(all(free.get(name, 0.0) >= most for name, most in one.items()) for one in wanted)
    )
    return set(islice(found, MOST_NODES))


def _by_makers(
    calls: Iterable[RayCall], jobs: Collection[str], actors: Iterable[RayActor]
) -> Iterator[RayCall]:
    """The calls of some jobs, with those that are made for them and filed under other jobs: Ray
    files the calls of an actor, and what it calls in turn, under the job that made the actor."""
    made: dict[str, list[RayCall]] = defaultdict(list)
    owners = {creation_id(actor.id): actor.job for actor in actors if actor.job in jobs}
    for call in calls:
        if call.job in jobs:
            owners[call.id] = call.job
            yield call
        else:
            made[call.parent].append(call)
    left = list(owners.items())
    while left:
        maker, job = left.pop()
        for call in made.pop(maker, ()):
            yield msgspec.structs.replace(call, job=job)
            left += [(id_, job) for id_ in (call.id, creation_id(call.actor)) if id_ in made]


def _begun_again(actors: Iterable[RayActor], calls: Iterable[RayCall]) -> Iterator[RayCall]:
    """The calls that make actors again: Ray lists only the first creation of each, which has
    ended. When it began is not known."""
    calls = tuple(calls)
    callers = {call.actor: call.job for call in reversed(calls) if call.actor}
    listed = {call.id for call in calls}
    for actor in actors:
        id_ = creation_id(actor.id)
        if actor.state == ray_replies.RESTARTING and id_ not in listed:
            yield RayCall(
                id=id_,
                parent="",
                job=callers.get(actor.id, actor.job),
                kind="actor-creation",
                name=f"{actor.kind}.__init__",
                actor=actor.id,
                state="running" if actor.pid else "unplaced",
                node=actor.node,
                pid=actor.pid,
            )


def _of_job(job: str) -> list[dict[str, Any]]:
    return [{"predicate": "EQUAL", "job_id": bytes.fromhex(job)}] if job else []

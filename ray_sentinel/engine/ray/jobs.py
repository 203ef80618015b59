"""All Ray jobs as the engine sees them: their members, what each does, and when to look at them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from ray_sentinel.backoff import Backoff
from ray_sentinel.engine.ray.job_view import EARLY_SECONDS, RayJobView
from ray_sentinel.engine.ray.methods import LEAST_TIMEOUT, RHYTHM, method_of
from ray_sentinel.model.identity import Node, ProcessId
from ray_sentinel.model.progress import HELD, STOPPED, RayProcess, Snapshot
from ray_sentinel.model.ray_calls import RayActor, RayCalls, going_on

BUILD_TIMEOUT = 60.0
"""Seconds within which the builder of a runtime environment must run again; it may wait for a
server."""
QUIET_SECONDS = 15.0
"""Seconds without a change after which a job without usual durations is first looked at."""
AGAIN_SECONDS = 5.0
"""Seconds between two looks while something is suspected."""
FIRST_LOOKS = 6
"""How many looks follow soon after each other."""
SELDOM_SECONDS = 30.0
"""Seconds between two later looks; also between all looks if only the job's silence is suspicious.
"""
MOST_SECONDS = 600.0
"""Most seconds between two looks at a job that has no rhythm."""
GROWING = Backoff(first=QUIET_SECONDS, most=MOST_SECONDS)
"""The seconds between two looks at such a job, up to this limit; each look that tells nothing new
doubles them."""
UNDER_WAY = 2.0
"""Seconds before a call's limit in which no look begins: it would still be under way then."""
LATE_SECONDS = 30.0
"""Seconds after which a look is no longer waited for."""
STOPPED_SECONDS = 2.0
"""Seconds for which a process must be stopped, or blocked in the kernel, before it is looked at."""
ENDED_SECONDS = 60.0
"""Seconds for which a job is remembered after its driver has gone."""
LAST_CALLS_SECONDS = 10.0
"""Seconds after the end of a driver in which its actors may still run calls without going on."""
SHORTEST = 1.0
"""Seconds; shorter durations are not visible to looks a second apart."""


class RayTrack(msgspec.Struct, kw_only=True):
    """One process of Ray. Times are on the coordinator's clock."""

    process: ProcessId
    address: str
    """The address of its node."""
    title: str
    since: float
    """Since when it has had this title, which may stand for several successive calls."""
    moved_at: float
    called_at: float = 0.0
    """When the call that it runs began, if Ray has told; of several, the first."""
    state: str = ""
    state_since: float = 0.0
    """Since when it is stopped, is blocked in the kernel, or is neither."""
    busy_since: float | None = None
    """Since when its main thread has not slept; None while it sleeps."""
    engine: str = ""
    """The job of the inference engine below it."""

    @property
    def still_since(self) -> float:
        """Since when it has neither moved nor begun anything else."""
        return max(self.since, self.moved_at)

    @property
    def began(self) -> float:
        """When what it runs began, as far as its title and Ray tell."""
        return max(self.since, self.called_at)

    @property
    def restless_since(self) -> float | None:
        """Since when its main thread has not slept in what it runs; None while it sleeps."""
        return None if self.busy_since is None else max(self.began, self.busy_since)

    @property
    def runs(self) -> str:
        """The method or task that it runs; empty between two, and for a driver."""
        return "" if self.title == "IDLE" or not self.title else self.title

    @property
    def is_held(self) -> bool:
        """Whether it was stopped, or blocked in the kernel, when it was last seen."""
        return self.state in HELD

    def stopped_for(self, now: float) -> float:
        """Seconds since it was stopped, or blocked in the kernel, without any time on a CPU."""
        return now - max(self.state_since, self.moved_at) if self.is_held else 0.0

    def runs_again(self, now: float) -> bool:
        """Whether nothing has held it for a while. A process that writes a lot is blocked now and
        then."""
        return not self.is_held and now - self.state_since > STOPPED_SECONDS


class NodeMembers(msgspec.Struct):
    """The actors of one job on one node that run a call, as of the node's last snapshot."""

    tracks: list[RayTrack]
    oldest: float
    """Since when the longest-standing one has stood still, or not slept."""
    held: bool
    """Whether any was stopped, or blocked in the kernel."""


class RayJobs(msgspec.Struct, kw_only=True, dict=True):
    """All Ray jobs. Only the engine changes it."""

    table: RayCalls = msgspec.field(default_factory=RayCalls)
    jobs: dict[str, RayJobView] = {}
    """Jobs by Ray's job id."""
    tracks: dict[str, dict[int, RayTrack]] = {}
    """Processes by Ray's node id and pid."""
    owners: dict[str, dict[int, str]] = {}
    """The jobs of living actors, by Ray's node id and pid."""
    going_on: set[str] = set()
    """The jobs whose actors were seen to run calls since their driver ended (Ray's ids)."""

    def __post_init__(self) -> None:
        self._index()

    def _index(self) -> None:
        """The processes that are gone through in every tick, by job. They follow from the table and
        the tracks."""
        self._actors: dict[str, list[RayActor]] = {}
        for actor in self.table.actors:
            self._actors.setdefault(actor.job, []).append(actor)
        self._running: dict[str, dict[str, NodeMembers]] = {}
        for node in self.tracks:
            self._index_node(node)

    def _index_node(self, node: str) -> None:
        for by_node in self._running.values():
            by_node.pop(node, None)
        tracks = self.tracks.get(node, {})
        for pid, job in self.owners.get(node, {}).items():
            track = tracks.get(pid)
            if track is None or not track.runs:
                continue
            by_node = self._running.setdefault(job, {})
            members = by_node.setdefault(node, NodeMembers([], track.still_since, False))
            members.tracks.append(track)
            restless = track.restless_since
            stays = track.still_since if restless is None else min(track.still_since, restless)
            members.oldest = min(members.oldest, stays)
            members.held = members.held or track.is_held

    def apply_table(self, table: RayCalls, now: float) -> None:
        """Apply Ray's current drivers, living actors and unplaced groups."""
        self.going_on &= {driver.job for driver in table.ended_drivers}
        self._set_table(going_on(table, self.going_on), now)

    def _set_table(self, table: RayCalls, now: float) -> None:
        self.table, self.owners = table, {}
        for actor in table.actors:
            self.owners.setdefault(actor.node, {})[actor.pid] = actor.job
        self._index()
        for driver in table.drivers:
            known = self.jobs.get(driver.job)
            if known is None:
                self.jobs[driver.job] = RayJobView(
                    id=driver.job, driver=driver, first_seen=now, changed_at=now
                )
            else:
                known.driver = driver
        living = {driver.job for driver in table.drivers}
        unready = {actor.job for actor in table.actors if actor.state != "ALIVE"}
        for job in self.jobs.values():
            if job.id in living:
                job.ended_at = None
            elif job.ended_at is None:
                job.ended_at = now
            if job.id not in unready:
                job.unready_since = None
            elif job.unready_since is None:
                job.unready_since = now

    def apply(self, snapshot: Snapshot, now: float, offset: float) -> None:
        """Apply what a node's agent sees; ``offset`` converts its clock to ours."""
        node = snapshot.node
        known = self.tracks.get(node.id, {})
        if not snapshot.ray_processes:
            if known:
                self.forget(node.id)
            return
        tracks = self.tracks[node.id] = {}
        for told in snapshot.ray_processes:
            track = known.get(told.process.pid)
            if track is not None and track.process != told.process:
                track = None
            job = self._job_of(node.id, told)
            tracks[told.process.pid] = self._track(told, track, node, job, now, offset)
        self._index_node(node.id)

    def apply_begins(self, calls: RayCalls, job: RayJobView, now: float) -> None:
        """Apply when the calls of a job began that Ray lists, or that the newest look shows; by the
        clock of a node that is ahead, some begin in the future."""
        first: dict[tuple[str, int], float] = {}
        for call in calls.calls:
            if call.state == "running" and call.pid and call.since is not None:
                place = call.node, call.pid
                first[place] = min(call.since, first.get(place, call.since))
        for (node, pid), at in first.items():
            if (track := self.tracks.get(node, {}).get(pid)) is not None:
                track.called_at = min(now, at)
        for standing in job.standing.values():
            unlisted = not standing.listed and standing.began is not None
            if unlisted and (track := self.track_of(standing.member.process)) is not None:
                track.called_at = standing.began or 0.0

    def forget(self, node: str) -> None:
        """Drop everything on a node where Ray no longer runs."""
        self.tracks.pop(node, None)
        self._index_node(node)

    def _job_of(self, node: str, told: RayProcess) -> RayJobView | None:
        """The job of a process. A worker that runs tasks and whose job nobody reports belongs to
        the running job, if there is only one; those that go on without a driver do not count beside
        one that has it."""
        if owner := self.owners.get(node, {}).get(told.process.pid):
            return self.jobs.get(owner)
        running = list(self.running())
        running = [job for job in running if not job.driver.ended] or running
        return running[0] if len(running) == 1 and told.title else None

    def _track(
        self,
        told: RayProcess,
        track: RayTrack | None,
        node: Node,
        job: RayJobView | None,
        now: float,
        offset: float,
    ) -> RayTrack:
        begun, moved = min(now, told.since + offset), min(now, told.moved_at + offset)
        if track is None:
            if job is not None:
                job.changed_at = max(job.changed_at, begun)
            return RayTrack(
                process=told.process,
                address=node.address,
                title=told.title,
                since=begun,
                moved_at=moved,
                state=told.state,
                state_since=now,
                busy_since=_ours(told.busy_since, offset),
                engine=told.engine,
            )
        # A debugger that comes to a stopped process does not let it go on.
        if _hold(track.state) != _hold(told.state):
            track.state_since = now
        track.state = told.state
        changed = told.title != track.title
        if job is not None and track.runs and (changed or moved > track.moved_at):
            stood = (begun if changed else moved) - track.still_since
            if stood > SHORTEST:
                job.method(track.runs).stood.add(stood)
        if changed:
            if job is not None:
                self._note_change(job, track, begun)
            track.title, track.since = told.title, begun
        track.moved_at = max(track.moved_at, moved)
        track.busy_since = _ours(told.busy_since, offset)
        track.engine = told.engine
        return track

    @staticmethod
    def _note_change(job: RayJobView, track: RayTrack, at: float) -> None:
        if track.runs and "." in track.runs:
            known = job.method(track.runs)
            known.ended += 1
            lasted = max(0.0, at - track.since)
            known.lasted.add(lasted)
            if not track.runs.endswith(".__init__"):
                job.pulse.add(track.runs, lasted, at)
                job.lanes.call(track.runs, at - lasted, at)
        gap = at - job.changed_at
        # What a job waits for while its actors are created says nothing about its work.
        if gap > SHORTEST and not track.runs.endswith(".__init__"):
            job.add_pause(gap, at)
        job.changed_at = max(job.changed_at, at)
        job.fruitless = 0

    def advance(self, now: float) -> None:
        """Find jobs that go on although their drivers have ended, and drop those that ended long
        ago."""
        found = {actor.job for actor in self.table.outliving if self._runs(actor)}
        found &= {driver.job for driver in self.table.ended_drivers}
        found -= {
            job.id
            for job in self.jobs.values()
            if job.ended_at is not None and now - job.ended_at <= LAST_CALLS_SECONDS
        }
        if found:
            self.going_on |= found
            self._set_table(going_on(self.table, found), now)
        for key, job in list(self.jobs.items()):
            if job.ended_at is not None and now - job.ended_at > ENDED_SECONDS:
                del self.jobs[key]

    def _runs(self, actor: RayActor) -> bool:
        """Whether an actor runs a call."""
        track = self.tracks.get(actor.node, {}).get(actor.pid)
        return track is not None and "." in track.runs

    def running(self) -> Iterator[RayJobView]:
        """The jobs whose drivers live, and those that go on without."""
        return (job for job in self.jobs.values() if job.ended_at is None)

    def driver_track(self, job: RayJobView) -> RayTrack | None:
        """The driver's process, if it is seen."""
        pid = job.driver.pid
        found = (tracks[pid] for tracks in self.tracks.values() if pid in tracks)
        return next((t for t in found if t.address == job.driver.address and not t.title), None)

    def actors_of(self, job: RayJobView) -> Iterator[tuple[RayActor, RayTrack | None]]:
        """The job's living actors, each with its process if that is seen."""
        for actor in self._actors.get(job.id, ()):
            yield actor, self.tracks.get(actor.node, {}).get(actor.pid)

    def above_engine(self, job: str) -> RayTrack | None:
        """The actor or driver that the ranks of an inference engine run below."""
        found = (track for tracks in self.tracks.values() for track in tracks.values())
        return next((track for track in found if track.engine == job), None)

    def job_of(self, track: RayTrack) -> RayJobView | None:
        """The job of an actor or a driver, if it is known."""
        for node, tracks in self.tracks.items():
            if tracks.get(track.process.pid) is track:
                owner = self.owners.get(node, {}).get(track.process.pid)
                if owner is not None:
                    return self.jobs.get(owner)
        drivers = (job for job in self.running() if self.driver_track(job) is track)
        return next(drivers, None)

    def track_of(self, process: ProcessId) -> RayTrack | None:
        """The track of a process that is seen now."""
        found = (t.get(process.pid) for t in self.tracks.values())
        return next((track for track in found if track and track.process == process), None)

    def due(
        self, now: float, asked_for: Iterable[str] = (), told: Iterable[str] = ()
    ) -> list[RayJobView]:
        """The jobs to look at now. ``asked_for`` are those whose ranks are suspected, ``told``
        those that have a case of their own."""
        wanted, open_ones = set(asked_for), set(told)
        return [
            job
            for job in self.running()
            if self._is_due(job, now, job.id in wanted, job.id in open_ones)
        ]

    def _is_due(self, job: RayJobView, now: float, asked_for: bool, told: bool) -> bool:
        under_way = job.asked_at is not None and job.asked_at > (job.looked_at or 0.0)
        if under_way and now - (job.asked_at or 0.0) < LATE_SECONDS:
            return False
        # What held it up may be over; if that was never reported, nothing need be withdrawn.
        over = told and job.stuck_roots() and job.changed_at > (job.looked_at or 0.0)
        over = over or (told and job.long_calls.have_changed(job.methods, now))
        every = AGAIN_SECONDS if over else self._look_interval(job, now, asked_for)
        last = job.asked_at if job.asked_at is not None else -MOST_SECONDS
        # Whether a call has exceeded its limit, only a look after that tells.
        limits = list(self._limits(job, now))
        if any(last <= limit < now for limit in limits) and now - last >= AGAIN_SECONDS:
            return True
        if any(now <= limit < now + UNDER_WAY for limit in limits):
            return False
        return every is not None and now - last >= every

    def _look_interval(self, job: RayJobView, now: float, asked_for: bool) -> float | None:
        """Seconds between looks at a job in its current state; None if there is nothing to look
        for."""
        unsure = any(not seen.is_sure() for seen in job.stuck_roots())
        late = min(self.overdue(job, now), default=None)
        if late is not None and late < LATE_SECONDS:
            return AGAIN_SECONDS
        if asked_for or late is not None or self._has_stopped(job, now):
            return AGAIN_SECONDS if unsure or job.fruitless < 4 else SELDOM_SECONDS
        if job.suspects_thread(now):
            return AGAIN_SECONDS
        if self.pending(job, now):
            return AGAIN_SECONDS if unsure or job.fruitless < 2 else SELDOM_SECONDS
        found = self._silent_interval(job, now), job.long_calls.look_interval(job.methods, now)
        return min((every for every in found if every is not None), default=None)

    def _silent_interval(self, job: RayJobView, now: float) -> float | None:
        """Seconds between looks because a job is silent; None if it is not."""
        unsure = any(not seen.is_sure() for seen in job.stuck_roots())
        if job.knows_durations:
            silent = job.silence(now) > job.timeout - EARLY_SECONDS
            # A process that works at one line in several looks may be spinning.
            soon = unsure or job.fruitless < FIRST_LOOKS
            return (AGAIN_SECONDS if soon else SELDOM_SECONDS) if silent else None
        if job.silence(now) > QUIET_SECONDS - EARLY_SECONDS:
            unsure = unsure or any(not one.is_sure() for one in job.standing.values())
            soon = unsure and job.fruitless < 2
            return AGAIN_SECONDS if soon else GROWING.delay(job.fruitless + 1)
        return None

    def overdue(self, job: RayJobView, now: float) -> Iterator[float]:
        """The processes that stand still in a method, or do not sleep in it, for longer than they
        may or soon will, each with its excess in seconds, at least ``-EARLY_SECONDS``."""
        for track in self._running_long(job, now):
            for since, timeout in (
                (
                    job.still_from(track.runs, track.began, track.still_since),
                    job.timeout_in(track.runs),
                ),
                (track.restless_since, _until_look(job, track.runs)),
            ):
                if since is not None and timeout is not None:
                    late = now - since - timeout
                    if late > -EARLY_SECONDS:
                        yield late

    def _limits(self, job: RayJobView, now: float) -> Iterator[float]:
        """Until when each process or thread that does not sleep in a method may go on so, each call
        in a coroutine, and each that lacks something."""
        yield from job.thread_limits()
        yield from job.lacking_limits()
        yield from job.awaiting_limits()
        for track in self._running_long(job, now):
            since, timeout = track.restless_since, job.round_timeout_in(track.runs)
            if since is not None and timeout is not None:
                yield since + timeout

    def _running_long(self, job: RayJobView, now: float) -> Iterator[RayTrack]:
        """The actors that run a method, on nodes where one has stayed in its for long."""
        for members in self._running.get(job.id, {}).values():
            # No timeout is shorter than this.
            if now - members.oldest > LEAST_TIMEOUT - EARLY_SECONDS:
                yield from (track for track in members.tracks if "." in track.runs)

    def _has_stopped(self, job: RayJobView, now: float) -> bool:
        on_nodes = self._running.get(job.id, {}).values()
        tracks = (track for members in on_nodes if members.held for track in members.tracks)
        return any(track.stopped_for(now) > STOPPED_SECONDS for track in tracks)

    def pending(self, job: RayJobView, now: float) -> bool:
        """Whether something in the job has long been waiting to be placed, or is being created."""
        groups = any(
            group.job == job.id and group.since is not None and now - group.since > LEAST_TIMEOUT
            for group in self.table.groups
        )
        return groups or (job.unready_since is not None and now - job.unready_since > LEAST_TIMEOUT)


def _hold(state: str) -> str:
    """What holds a process in this state: "T" for a stop (a debugger's too), "D" for the kernel, ""
    for nothing."""
    return "T" if state in STOPPED else state if state in HELD else ""


def _until_look(job: RayJobView, title: str) -> float | None:
    """Seconds without a rest after which a process is looked at. For calls whose durations Ray has
    not reported, that is sooner than it can be judged, because the look brings them."""
    known = job.methods.get(method_of(title))
    untold = known is not None and known.told < RHYTHM
    return LEAST_TIMEOUT if untold else job.round_timeout_in(title)


def _ours(at: float | None, offset: float) -> float | None:
    """A time of an agent's clock on our clock."""
    return None if at is None else at + offset

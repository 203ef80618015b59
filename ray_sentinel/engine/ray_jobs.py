"""Ray jobs as the engine sees them: who is in them, what each does, how long that usually takes.

A job of actors counts no steps. What is learned instead is how long a process stands still in each
method: a rollout whose main thread waits for its engine for a minute in every call may do so; one
that never stood still for longer than a second may not. A method that has ended a few times has a
rhythm, and is judged by it; what has none is looked at, and judged by hard evidence alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from ray_sentinel.engine.durations import DurationStats
from ray_sentinel.engine.placement import Missing, missing_of
from ray_sentinel.evidence.stacks.compare import movement
from ray_sentinel.model.identity import Node, ProcessId
from ray_sentinel.model.progress import RayProcess, Snapshot
from ray_sentinel.model.ray_calls import EndedCalls, RayActor, RayCalls, RayDriver
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.waitgraph.picture import JobPicture, RootMember, StandingProcess, WaitRoot

PATIENCE = 15.0
"""Seconds in which nothing is suspected, whatever is usual."""
FACTOR = 3.0
"""So many times the usual is suspicious."""
ROUND_FACTOR = 10.0
"""The same of who computes without a rest."""
RHYTHM = 3
"""A method that has ended so often is known."""
UNKNOWN_PATIENCE = 120.0
"""For a method that is not known, in a job that is."""
STARTUP_PATIENCE = 300.0
"""For a constructor, where no fellow has come through it: it may load a model."""
NEWCOMER_PATIENCE = 60.0
"""The same in a job that works already."""
BUILD_PATIENCE = 60.0
"""For what builds a runtime environment, to be put on a CPU again: it may wait for a server."""
QUIET_SECONDS = 15.0
"""After so long without a change a job without a rhythm is looked at for the first time."""
AGAIN_SECONDS = 5.0
"""Between two looks, while something is suspected."""
EARLY_SECONDS = 6.0
"""So long before patience ends the first look is taken, so that the second can tell."""
FIRST_LOOKS = 6
"""So many are taken soon after each other."""
SELDOM_SECONDS = 30.0
"""Between two looks later on, and when only the job's silence is suspicious."""
MOST_SECONDS = 600.0
"""Between two looks at a job that has no rhythm."""
LATE_SECONDS = 30.0
"""A look that has not come by then is not waited for."""
STOPPED_SECONDS = 2.0
"""So long a process must be stopped, or blocked in the kernel, before that is looked at."""
HELD = frozenset({"T", "t", "D"})
"""States of what is stopped, or blocked in the kernel."""
SAME_SECONDS = 4.0
"""Two looks so far apart that show the same tell more than one."""
ENDED_SECONDS = 60.0
"""A job is remembered for so long after its driver is gone."""
SHORTEST = 1.0
"""Seconds; what is shorter is not seen by looks a second apart."""
MOST_METHODS = 1000
"""Of one job whose durations are learned."""


class RayTrack(msgspec.Struct, kw_only=True):
    """One process of Ray. Times are the coordinator's."""

    process: ProcessId
    address: str
    """Of its node."""
    title: str
    since: float
    moved_at: float
    state: str = ""
    state_since: float = 0.0
    busy_since: float | None = None
    """Since when its main thread has not rested; None while it rests."""
    engine: str = ""
    """The job of the inference engine below it."""

    @property
    def still_since(self) -> float:
        """Since when it has neither moved nor begun anything else."""
        return max(self.since, self.moved_at)

    @property
    def restless_since(self) -> float | None:
        """Since when its main thread has not rested in what it runs; None while it rests."""
        return None if self.busy_since is None else max(self.since, self.busy_since)

    @property
    def runs(self) -> str:
        """The method or task that it runs; empty between two, and for a driver."""
        return "" if self.title == "IDLE" or not self.title else self.title

    def stopped_for(self, now: float) -> float:
        """Seconds since it was stopped, or blocked in the kernel, without a moment on a CPU."""
        held = self.state in HELD
        return now - max(self.state_since, self.moved_at) if held else 0.0


class KnownMethod(msgspec.Struct, kw_only=True):
    """What is known of one method of a class, or of one task."""

    ended: int = 0
    lasted: DurationStats = msgspec.field(default_factory=DurationStats)
    """From its title's coming to its going: several calls, where they follow at once."""
    stood: DurationStats = msgspec.field(default_factory=DurationStats)
    """How long a process stood still in it."""
    longest: float = 0.0
    """Seconds that a call of it took, as Ray told."""
    told: int = 0
    """Of so many calls."""
    last_at: float = 0.0
    """When the last of them ended."""

    @property
    def patience(self) -> float:
        """Seconds for which a process may stand still in it."""
        if self.lasted.recent:
            return self.stood.timeout(PATIENCE, FACTOR)
        return max(PATIENCE, FACTOR * self.longest)

    @property
    def round_patience(self) -> float:
        """Seconds for which a process may go round in it without a rest: who computes goes on, so
        that only what takes many times as long as ever is suspicious."""
        return max(PATIENCE, ROUND_FACTOR * self.longest_call)

    @property
    def longest_call(self) -> float:
        """Seconds that the longest call of it took."""
        # A title may last for several calls.
        by_title = self.lasted.timeout(0.0, 1.0) if self.told < RHYTHM else 0.0
        return max(self.longest, by_title)

    def take(self, told: EndedCalls) -> bool:
        """What Ray tells of its calls: those that are too short to be seen are known by it. Whether
        any has ended since it last told."""
        self.ended = max(self.ended, told.count)
        self.longest = max(self.longest, told.longest)
        self.told = max(self.told, told.count)
        before, self.last_at = self.last_at, max(self.last_at, told.last_at)
        return self.last_at > before


class SeenRoot(msgspec.Struct, kw_only=True):
    """What held a job up in the last look, and since which look."""

    root: WaitRoot
    first_at: float
    last_at: float

    def is_sure(self) -> bool:
        """Whether two looks with time in between showed the same."""
        return self.last_at - self.first_at >= SAME_SECONDS


class StandingMember(msgspec.Struct, kw_only=True):
    """A process that stands where it waits for nobody, or goes round there on a CPU."""

    member: RootMember
    place: str
    """What it does, and where: "sleeping in score (reward.py:88)"."""
    called_by: str
    """Who made the call that it runs."""
    began: float | None = None
    """When that began, as Ray tells."""
    round_in: StackFact | None = None
    """Where it went round in the first of the looks that show the same."""
    keeps_gil: bool = False
    """Whether it had the GIL at one line in all of them."""
    switches: int | None = None
    """As of ``StandingProcess``."""
    thread_still_since: float | None = None
    """The first of the looks since which that thread has not run; None of a main thread."""
    first_at: float
    last_at: float

    def is_sure(self) -> bool:
        """As of ``SeenRoot``."""
        return self.last_at - self.first_at >= SAME_SECONDS


class RayJobView(msgspec.Struct, kw_only=True):
    """One Ray job. Times are the coordinator's."""

    id: str
    """Ray's job id, in hex."""
    driver: RayDriver
    first_seen: float
    changed_at: float
    """When a method or task in it last began or ended."""
    methods: dict[str, KnownMethod] = {}
    pauses: DurationStats = msgspec.field(default_factory=DurationStats)
    """Between two changes, where they were longer than a look of the agent."""
    ended_at: float | None = None
    asked_at: float | None = None
    looked_at: float | None = None
    picture: JobPicture | None = None
    """Of the last look."""
    notes: tuple[str, ...] = ()
    """What that look could not see."""
    free_on: dict[str, dict[str, float]] = {}
    """By node id: what was free then of the resources that the job asks for."""
    missing: dict[str, Missing] = {}
    """By what the waits call it: what is missing to what could not be placed then."""
    roots: list[SeenRoot] = []
    unready_since: float | None = None
    """Since when an actor of it has not been made."""
    standing: dict[ProcessId, StandingMember] = {}
    """Who stood still, or went round in one place, in the last look, and since which look."""
    fruitless: int = 0
    """Looks at it, one after the other, in which nothing has begun or ended."""

    @property
    def name(self) -> str:
        """As people know it."""
        return self.driver.name or self.id

    @property
    def has_rhythm(self) -> bool:
        """Whether any of its methods has one; that its actors were made is none."""
        return any(
            known.ended >= RHYTHM
            for title, known in self.methods.items()
            if not title.endswith(".__init__")
        )

    def method(self, title: str) -> KnownMethod:
        """What is known of it; of too many methods nothing new is learned."""
        title = _method_of(title)
        if title not in self.methods and len(self.methods) >= MOST_METHODS:
            return KnownMethod()
        return self.methods.setdefault(title, KnownMethod())

    def round_patience_in(self, title: str) -> float | None:
        """Seconds for which a process may go round in a method, or in the driver (an empty title);
        None where no time tells."""
        if not title:
            return self.pauses.timeout(PATIENCE, ROUND_FACTOR) if self.has_rhythm else None
        known = self.methods.get(_method_of(title))
        return known.round_patience if known is not None and known.ended >= RHYTHM else None

    def patience_in(self, title: str) -> float | None:
        """Seconds for which a process may stand still in a method; None where no time tells.

        A constructor is known once a fellow has come through it; where none has, it has a patience
        of its own.
        """
        known = self.methods.get(_method_of(title))
        constructs = title.endswith(".__init__")
        if known is not None and known.ended >= (1 if constructs else RHYTHM):
            return known.patience
        if constructs:
            return NEWCOMER_PATIENCE if self.has_rhythm else STARTUP_PATIENCE
        return UNKNOWN_PATIENCE if self.has_rhythm else None

    def longest_call_of(self, methods: Iterable[str]) -> float | None:
        """Seconds that the longest call of any of these methods took; None where none of them is
        known: it may serve as long as the job lasts."""
        names = (_method_of(name) for name in methods)
        known = [self.methods[name] for name in names if name in self.methods]
        return max((one.longest_call for one in known if one.ended >= RHYTHM), default=None)

    @property
    def patience(self) -> float:
        """Seconds for which nothing need begin or end in it."""
        return self.pauses.timeout(PATIENCE, FACTOR)

    def silence(self, now: float) -> float:
        """Seconds since a method or task in it began or ended."""
        return max(0.0, now - self.changed_at)

    def take_picture(
        self,
        picture: JobPicture | None,
        now: float,
        notes: tuple[str, ...],
        calls: RayCalls,
    ) -> None:
        """What the newest look shows, None where it shows nothing of the job; what was seen before
        and is seen no more is forgotten. ``notes``: what could not be seen."""
        self.looked_at, self.notes, self.free_on = now, notes, _free_of_asked(calls, self.id)
        self.missing = missing_of(calls, self.id)
        self.fruitless += 1
        for name, told in calls.ended.items():
            if self.method(name).take(told) and (ended := min(now, told.last_at)) > self.changed_at:
                # Calls that follow each other at once have one title.
                self.changed_at, self.fruitless = ended, 0
        if picture is None:
            return
        known = {_key(seen.root): seen for seen in self.roots}
        self.roots = []
        for root in picture.roots:
            seen = known.get(_key(root))
            first = now if seen is None else seen.first_at
            self.roots.append(SeenRoot(root=root, first_at=first, last_at=now))
        self.standing = {
            one.member.process: _standing(one, self.standing.get(one.member.process), now)
            for one in picture.standing
        }
        # The stacks would be kept with every snapshot.
        self.picture = msgspec.structs.replace(picture, facts=())

    def wants_times(self) -> bool:
        """Whether the next look is to tell how long ended calls took: of the first one of some, or
        where too little is known of a method in which somebody stood in the last one."""
        stood_in = {
            _method_of(name) for one in self.standing.values() for name in one.member.methods
        }
        unknown = (
            name
            for name in stood_in
            if name not in self.methods or self.methods[name].told < RHYTHM
        )
        return not self.fruitless or any(unknown)

    def suspects_thread(self, now: float) -> bool:
        """Whether a thread stood in the last look whose call is overdue, and has not been seen to
        stand for long enough."""
        for one in self.standing.values():
            longest = self.longest_call_of(one.member.methods)
            if one.thread_still_since is None or one.began is None or longest is None:
                continue
            seen = one.last_at - one.thread_still_since >= max(SAME_SECONDS, longest)
            late = now - one.began > max(PATIENCE, FACTOR * longest) - EARLY_SECONDS
            if late and not seen:
                return True
        return False

    def stuck_roots(self) -> list[SeenRoot]:
        """Those of the last look that may hold it up for ever."""
        return [seen for seen in self.roots if seen.root.kind not in ("works", "idle")]


def _key(root: WaitRoot) -> tuple[object, ...]:
    members = tuple(one.process for one in root.processes)
    return (root.kind, root.who, root.why, root.moves, members)


def _standing(one: StandingProcess, old: StandingMember | None, now: float) -> StandingMember:
    """As this look and those before it show it."""
    fact = one.round_in
    new = StandingMember(
        member=one.member,
        place=one.place,
        called_by=one.called_by,
        began=one.began,
        round_in=fact,
        keeps_gil=fact is not None and fact.holds_gil is True,
        switches=one.switches,
        thread_still_since=None if one.switches is None else now,
        first_at=now,
        last_at=now,
    )
    if old is None:
        return new
    before = old.round_in
    if fact is None or before is None:
        if fact is not before or old.place != new.place:
            return new
        still = old.thread_still_since if old.switches == new.switches else new.thread_still_since
        return msgspec.structs.replace(new, first_at=old.first_at, thread_still_since=still)
    moved = movement((before, fact))
    if moved not in ("stuck", "in-place"):
        return new
    return msgspec.structs.replace(
        new,
        first_at=old.first_at,
        round_in=before,
        keeps_gil=old.keeps_gil and new.keeps_gil and moved == "stuck",
    )


class NodeMembers(msgspec.Struct):
    """The actors of one job on one node that run a call, as its last snapshot showed them."""

    tracks: list[RayTrack]
    oldest: float
    """Since when the one has stood still, or not rested, that has for longest."""
    held: bool
    """Whether any was stopped, or blocked in the kernel."""


class RayJobs(msgspec.Struct, kw_only=True, dict=True):
    """All Ray jobs. Changed only by the engine."""

    table: RayCalls = msgspec.field(default_factory=RayCalls)
    jobs: dict[str, RayJobView] = {}
    """By Ray's job id."""
    tracks: dict[str, dict[int, RayTrack]] = {}
    """By Ray's node id and pid."""
    owners: dict[str, dict[int, str]] = {}
    """The jobs of living actors, likewise."""

    def __post_init__(self) -> None:
        self._index()

    def _index(self) -> None:
        """What is gone through in every tick, by job. It follows from the table and the tracks."""
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
            members.held = members.held or track.state in HELD

    def take_table(self, table: RayCalls, now: float) -> None:
        """Ray's drivers, living actors and unplaced groups as they are now."""
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

    def take(self, snapshot: Snapshot, now: float, offset: float) -> None:
        """What a node's agent sees; ``offset`` takes its clock to ours."""
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

    def forget(self, node: str) -> None:
        """Nothing of Ray is seen there any more."""
        self.tracks.pop(node, None)
        self._index_node(node)

    def _job_of(self, node: str, told: RayProcess) -> RayJobView | None:
        """Of a worker that runs tasks nobody says whose they are: where there is one job, its."""
        if owner := self.owners.get(node, {}).get(told.process.pid):
            return self.jobs.get(owner)
        running = [job for job in self.jobs.values() if job.ended_at is None]
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
        if track.state != told.state:
            track.state, track.state_since = told.state, now
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
            known.lasted.add(max(0.0, at - track.since))
        gap = at - job.changed_at
        # What a job waits for while its actors are made is no habit of its work.
        if gap > SHORTEST and not track.runs.endswith(".__init__"):
            job.pauses.add(gap)
        job.changed_at = max(job.changed_at, at)
        job.fruitless = 0

    def advance(self, now: float) -> None:
        """Forget jobs that ended long ago."""
        for key, job in list(self.jobs.items()):
            if job.ended_at is not None and now - job.ended_at > ENDED_SECONDS:
                del self.jobs[key]

    def running(self) -> Iterator[RayJobView]:
        """Those whose drivers live."""
        return (job for job in self.jobs.values() if job.ended_at is None)

    def driver_track(self, job: RayJobView) -> RayTrack | None:
        """The driver's process, where it is seen."""
        pid = job.driver.pid
        found = (tracks[pid] for tracks in self.tracks.values() if pid in tracks)
        return next((t for t in found if t.address == job.driver.address and not t.title), None)

    def actors_of(self, job: RayJobView) -> Iterator[tuple[RayActor, RayTrack | None]]:
        """Its living actors, each with its process where it is seen."""
        for actor in self._actors.get(job.id, ()):
            yield actor, self.tracks.get(actor.node, {}).get(actor.pid)

    def above_engine(self, job: str) -> RayTrack | None:
        """The process that the ranks of an inference engine run below, be it an actor or a
        driver."""
        found = (track for tracks in self.tracks.values() for track in tracks.values())
        return next((track for track in found if track.engine == job), None)

    def job_of(self, track: RayTrack) -> RayJobView | None:
        """The job of an actor or a driver, where that is known."""
        for node, tracks in self.tracks.items():
            if tracks.get(track.process.pid) is track:
                owner = self.owners.get(node, {}).get(track.process.pid)
                if owner is not None:
                    return self.jobs.get(owner)
        drivers = (job for job in self.running() if self.driver_track(job) is track)
        return next(drivers, None)

    def track_of(self, process: ProcessId) -> RayTrack | None:
        """A process that is seen now."""
        found = (t.get(process.pid) for t in self.tracks.values())
        return next((track for track in found if track and track.process == process), None)

    def due(
        self, now: float, asked_for: Iterable[str] = (), told: Iterable[str] = ()
    ) -> list[RayJobView]:
        """The jobs that are to be looked at now; ``asked_for``: those whose ranks are suspected,
        ``told``: those that have a case of their own."""
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
        # What held it up may be over; where nothing was told of it, nothing need be taken back.
        over = told and job.stuck_roots() and job.changed_at > (job.looked_at or 0.0)
        every = AGAIN_SECONDS if over else self._look_every(job, now, asked_for)
        last = job.asked_at if job.asked_at is not None else -MOST_SECONDS
        return every is not None and now - last >= every

    def _look_every(self, job: RayJobView, now: float, asked_for: bool) -> float | None:
        """Seconds between looks at a job as it is now; None where there is nothing to look for."""
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
        if job.has_rhythm:
            silent = job.silence(now) > job.patience - EARLY_SECONDS
            # What works at one line in all of several looks may spin.
            soon = unsure or job.fruitless < FIRST_LOOKS
            return (AGAIN_SECONDS if soon else SELDOM_SECONDS) if silent else None
        if job.silence(now) > QUIET_SECONDS - EARLY_SECONDS:
            unsure = unsure or any(not one.is_sure() for one in job.standing.values())
            soon = unsure and job.fruitless < 2
            growing = min(MOST_SECONDS, QUIET_SECONDS * 2.0 ** min(job.fruitless, 10))
            return AGAIN_SECONDS if soon else growing
        return None

    def overdue(self, job: RayJobView, now: float) -> Iterator[float]:
        """For each process that stands still in a method, or goes without a rest in it, for longer
        than it may, or soon will, by how many seconds; the least is ``-EARLY_SECONDS``."""
        for members in self._running.get(job.id, {}).values():
            # Nobody's patience is shorter.
            if now - members.oldest <= PATIENCE - EARLY_SECONDS:
                continue
            for track in members.tracks:
                if "." not in track.runs:
                    continue
                for since, patience in (
                    (track.still_since, job.patience_in(track.runs)),
                    (track.restless_since, _until_look(job, track.runs)),
                ):
                    if since is not None and patience is not None:
                        late = now - since - patience
                        if late > -EARLY_SECONDS:
                            yield late

    def _has_stopped(self, job: RayJobView, now: float) -> bool:
        on_nodes = self._running.get(job.id, {}).values()
        tracks = (track for members in on_nodes if members.held for track in members.tracks)
        return any(track.stopped_for(now) > STOPPED_SECONDS for track in tracks)

    def pending(self, job: RayJobView, now: float) -> bool:
        """Whether something in it could not be placed for long, or is being made."""
        groups = any(
            group.job == job.id and group.since is not None and now - group.since > PATIENCE
            for group in self.table.groups
        )
        return groups or (job.unready_since is not None and now - job.unready_since > PATIENCE)


def _method_of(title: str) -> str:
    """The name under which all of a class know it: Ray puts an actor's name before its constructor.

    >>> _method_of("left:Rollout.__init__"), _method_of("Rollout.generate")
    ('Rollout.__init__', 'Rollout.generate')
    """
    return title.rpartition(":")[2] if title.endswith(".__init__") else title


def _until_look(job: RayJobView, title: str) -> float | None:
    """Seconds without a rest after which a process is looked at: of calls whose durations Ray has
    not told, sooner than it can be judged, for the look brings them."""
    known = job.methods.get(_method_of(title))
    untold = known is not None and known.told < RHYTHM
    return PATIENCE if untold else job.round_patience_in(title)


def _ours(at: float | None, offset: float) -> float | None:
    """A time of an agent's clock on ours."""
    return None if at is None else at + offset


def _free_of_asked(calls: RayCalls, job: str) -> dict[str, dict[str, float]]:
    """By node: how much is free of each resource that a job asks for and has not been given."""
    asked = {
        name
        for call in calls.calls
        # What is free on a node without the labels that are asked for is of no use.
        if call.job == job and call.state == "unplaced" and not call.selectors
        for name in call.needs
        # A part of a placement group is free for nobody else.
        if "_group_" not in name
    }
    asked |= {
        name
        for group in calls.groups
        if group.job == job
        for bundle in group.bundles
        for name in bundle
    }
    if not asked:
        return {}
    return {
        node: {name: free.get(name, 0.0) for name in sorted(asked)}
        for node, free in calls.free_on.items()
    }

"""One Ray job as the engine sees it: how long its methods take, and what the last looks showed."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import sub

import msgspec

from ray_sentinel.backoff import Backoff
from ray_sentinel.engine.durations import DurationStats
from ray_sentinel.engine.last_hour.lanes import Lanes
from ray_sentinel.engine.last_hour.pulse import Pulse
from ray_sentinel.engine.ray.long_calls import LongCalls, running_since
from ray_sentinel.engine.ray.methods import (
    FACTOR,
    LEAST_TIMEOUT,
    RHYTHM,
    ROUND_FACTOR,
    KnownMethod,
    call_timeout,
    method_of,
    runs_anything,
)
from ray_sentinel.engine.ray.placement import Missing, missing_of
from ray_sentinel.engine.ray.seen import (
    Looking,
    SeenRoot,
    StandingMember,
    first_look,
    is_sure_after,
    root_key,
    same_sleep,
    seen_root,
    still_looking,
    still_standing,
)
from ray_sentinel.evidence.stacks.compare import children_worked
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.ray_calls import (
    CallWaker,
    EndedCalls,
    FailedCall,
    RayCalls,
    RayDriver,
)
from ray_sentinel.model.stacks import Activity, StackFact
from ray_sentinel.waitgraph.picture import JobPicture, RootMember, WaitRoot
from ray_sentinel.waitgraph.ray_calls import OWN_WAIT

UNKNOWN_TIMEOUT = 120.0
"""Timeout (s) of an unknown method in a job whose other methods are known."""
STARTUP_TIMEOUT = 300.0
"""Timeout (s) of a constructor that no other actor has come through: it may load a model."""
NEWCOMER_TIMEOUT = 60.0
"""Timeout (s) of such a constructor in a job that is already working."""
EARLY_SECONDS = 6.0
"""Seconds before a timeout at which the first look is taken, so that a second can confirm it."""
TIMES_AFTER = 6.0
"""Seconds of silence after which Ray is asked when calls ended, if the pauses between titles would
raise the timeout above the least, or the titles show no usual durations."""
TIMES_EVERY = 10.0
"""Seconds between two such requests; each that brings nothing new doubles them."""
TIMES_SELDOM = 60.0
"""Most seconds between two such requests."""
TIMES_WITH_RHYTHM = Backoff(first=TIMES_EVERY, most=TIMES_SELDOM)
TIMES_WITHOUT = Backoff(first=TIMES_EVERY, most=2.0 * TIMES_EVERY)
"""The seconds between such requests where there is no rhythm yet; they are doubled once only, by an
answer that tells nothing new."""
FAILED_SECONDS = 30.0
"""Seconds before a wait began within which a call that failed may be what it waits for."""
MOST_STACKS = 32
"""Most stacks of one job that are kept until the next look."""
MOST_LENDERS = 10
"""Most other jobs whose calls are asked for."""
MOST_METHODS = 1000
"""Most methods of one job whose durations are learned."""


def given_timeout(root: WaitRoot) -> float:
    """Seconds within which Ray gives a call what it lacks, if anybody has it."""
    return UNKNOWN_TIMEOUT if root.lacks == "worker" else LEAST_TIMEOUT


class RayJobView(msgspec.Struct, kw_only=True):
    """One Ray job. Times are on the coordinator's clock."""

    id: str
    """Ray's job id, in hex."""
    driver: RayDriver
    first_seen: float
    changed_at: float
    """When a method or task of the job last began or ended."""
    methods: dict[str, KnownMethod] = {}
    pauses: DurationStats = msgspec.field(default_factory=DurationStats)
    """Times between two changes, if longer than an agent's look interval."""
    pause_ends: list[float] = []
    """When each of the last pauses ended."""
    untimed: int = 0
    """Pauses since Ray last reported when calls began and ended."""
    times_asked_at: float | None = None
    """When Ray was last asked for these times alone."""
    times_in_vain: int = 0
    """Such requests since the last one that shortened a pause."""
    ended_at: float | None = None
    asked_at: float | None = None
    looked_at: float | None = None
    lenders: tuple[str, ...] = ()
    """The other jobs whose actors it has called, as far as looks have shown calls of them."""
    picture: JobPicture | None = None
    """The picture of the last look."""
    notes: tuple[str, ...] = ()
    """What that look could not see."""
    failed: tuple[FailedCall, ...] = ()
    """The last calls that failed by themselves, as far as Ray was asked for them."""
    wakers: tuple[CallWaker, ...] = ()
    """Who has ended waits in calls that were running, as far as Ray was asked."""
    free_on: dict[str, dict[str, float]] = {}
    """Free resources at that look, of those that the job asks for, by node id."""
    missing: dict[str, Missing] = {}
    """What the items that could not be placed at that look lack, by their name in the wait
    graph."""
    roots: list[SeenRoot] = []
    unready_since: float | None = None
    """Since when an actor of the job has been waiting to be created."""
    standing: dict[ProcessId, StandingMember] = {}
    """The processes that stood still, or went round in one place, in the last look, and since which
    look."""
    looking: dict[ProcessId, Looking] = {}
    """The processes that wait for their own, and have done nothing else since some look."""
    stacks: dict[ProcessId, StackFact] = {}
    """Stacks of the last look: of those who stood still or held the job up, and of one waiter for
    each."""
    long_calls: LongCalls = msgspec.field(default_factory=LongCalls)
    """The calls that have been running for long."""
    quiet_look_at: float = 0.0
    """When the first look was taken since a method or task last began or ended."""
    fruitless: int = 0
    """Successive looks at the job between which nothing has begun or ended."""
    pulse: Pulse = msgspec.field(default_factory=Pulse)
    """The pulse of its actors' calls."""
    lanes: Lanes = msgspec.field(default_factory=Lanes)
    """The lanes of its roles."""

    @property
    def name(self) -> str:
        """The job's name for people."""
        return self.driver.name or self.id

    @property
    def has_rhythm(self) -> bool:
        """Whether the usual duration of any of its methods is known. Constructors do not count, nor
        does a method that runs whatever it is given."""
        return any(not runs_anything(title) for title in self._timed())

    @property
    def knows_durations(self) -> bool:
        """Whether the durations of any of its methods but constructors are known."""
        return any(True for _ in self._timed())

    def _timed(self) -> Iterator[str]:
        found = ((title, known.ended) for title, known in self.methods.items())
        return (t for t, ended in found if ended >= RHYTHM and not t.endswith(".__init__"))

    def method(self, title: str) -> KnownMethod:
        """What is known about a method. Beyond ``MOST_METHODS``, new ones are not kept."""
        title = method_of(title)
        if title not in self.methods and len(self.methods) >= MOST_METHODS:
            return KnownMethod()
        # What others of its calls took says nothing of a call that runs another function.
        longest = UNKNOWN_TIMEOUT / FACTOR if runs_anything(title) else 0.0
        return self.methods.setdefault(title, KnownMethod(longest=longest))

    def round_timeout_in(self, title: str) -> float | None:
        """Seconds for which a process may stay on a CPU in a method, or in the driver (an empty
        title); None if no time limit can be derived."""
        if not title:
            return self.pauses.timeout(LEAST_TIMEOUT, ROUND_FACTOR) if self.has_rhythm else None
        if runs_anything(title):
            return None
        known = self.methods.get(method_of(title))
        return known.round_timeout if known is not None and known.ended >= RHYTHM else None

    def timeout_in(self, title: str) -> float | None:
        """Seconds for which a process may stand still in a method; None if no time limit can be
        derived.

        A constructor is known once one actor has come through it; until then it has a timeout
        of its own.
        """
        known = self.methods.get(method_of(title))
        constructs = title.endswith(".__init__")
        if known is not None and known.ended >= (1 if constructs else RHYTHM):
            return max(known.timeout, UNKNOWN_TIMEOUT if runs_anything(title) else 0.0)
        if constructs:
            return NEWCOMER_TIMEOUT if self.has_rhythm else STARTUP_TIMEOUT
        return UNKNOWN_TIMEOUT if self.has_rhythm else None

    def still_from(self, title: str, began: float, still_since: float) -> float:
        """From when on it counts that a process stands still in a method, given when its call began
        and since when it stands. A call of which no usual duration is known may serve others as
        long as the job lasts: while these go on, it holds nobody up, unless it has worked all the
        time before, for as long as nothing is known of a call."""
        known = self.methods.get(method_of(title))
        if title.endswith(".__init__") or (known is not None and known.ended >= RHYTHM):
            return still_since
        stood = known.stood.timeout(0.0, FACTOR) if known is not None else 0.0
        worked = still_since - began >= UNKNOWN_TIMEOUT >= stood
        return still_since if worked else max(still_since, self.changed_at)

    def longest_call_of(self, methods: Iterable[str]) -> float | None:
        """Seconds that the longest call of any of these methods took; None if none of them is
        known, because such a method may serve as long as the job lasts."""
        names = (method_of(name) for name in methods)
        known = [self.methods[name] for name in names if name in self.methods]
        return max((one.longest_call for one in known if one.ended >= RHYTHM), default=None)

    def longest_round_timeout(self, methods: Iterable[str]) -> float | None:
        """The longest ``round_timeout_in`` of any of these methods; None if none has one."""
        return max(filter(None, map(self.round_timeout_in, methods)), default=None)

    def coroutine_limits(self, member: RootMember) -> Iterator[tuple[str, float]]:
        """The methods that an actor runs, each with the time until which its oldest call may await
        something of its own while others begin and end."""
        for name, begun in member.begun.items():
            if (limit := self.round_timeout_in(name)) is not None:
                yield name, begun + max(UNKNOWN_TIMEOUT, limit)

    @property
    def timeout(self) -> float:
        """Seconds without a call that begins or ends that are normal in the job."""
        return self.pauses.timeout(LEAST_TIMEOUT, FACTOR)

    @property
    def tells_times(self) -> bool:
        """Whether Ray has told when calls of the job ended."""
        return any(known.told for known in self.methods.values())

    def silence(self, now: float) -> float:
        """Seconds since a method or task of the job began or ended."""
        return max(0.0, now - self.changed_at)

    def goes_on(self, now: float) -> bool:
        """Whether calls still begin and end, with pauses as usual."""
        return self.silence(now) <= self.timeout - EARLY_SECONDS

    def add_pause(self, seconds: float, ended_at: float) -> None:
        """Record that no title changed for ``seconds`` before ``ended_at``."""
        self.pauses.add(seconds)
        self.pause_ends.append(ended_at)
        del self.pause_ends[: -len(self.pauses)]
        self.untimed += 1

    def _split_pauses(self, changes: Sequence[int]) -> None:
        """Split pauses at the times when calls began and ended. Calls that follow each other at
        once have one title, so what looks like a pause may be none. ``changes`` are these times,
        whole Unix seconds in ascending order."""
        first = len(self.pauses) - len(self.pause_ends)
        split = list(self.pauses.recent)
        for number, end in enumerate(self.pause_ends, start=first):
            begin = end - split[number]
            inside = changes[bisect_right(changes, begin) : bisect_left(changes, end)]
            if inside:
                split[number] = max(map(sub, (*inside, end), (begin, *inside)))
        if changes:
            self.untimed = 0
        if split != self.pauses.recent:
            self.pauses, self.times_in_vain = DurationStats(split), 0

    def lacks_times(self, now: float) -> bool:
        """Whether to ask Ray now when calls ended. Before silence counts, what looks like one long
        pause must be resolved into the calls that it may have been, and for tasks, whose ends the
        titles do not show, the usual durations must be known."""
        if self.long_calls.lacks_times(self.methods, now):
            return True
        if self.silence(now) < TIMES_AFTER:
            return False
        last, rhythm = self.times_asked_at, self.has_rhythm
        news = self.changed_at > (last or 0.0)
        if news and self.lenders:  # no title of the job shows the calls of lent actors
            return last is None or now - last >= TIMES_AFTER
        if not (self.untimed and self.timeout > LEAST_TIMEOUT if rhythm else news):
            return False
        pace = TIMES_WITH_RHYTHM if rhythm else TIMES_WITHOUT
        return last is None or now - last >= pace.delay(self.times_in_vain + 1)

    def failed_before(self, root: WaitRoot) -> tuple[str, ...]:
        """The calls that failed by themselves shortly before the root was waited for, or since, in
        words: what is awaited may have been theirs to bring, and not every program looks at the
        results of its calls."""
        begun = min((step.since for step in root.chain if step.since), default=self.changed_at)
        return tuple(
            f"{call.name}{f' at {call.actor}' if call.actor else ''} failed "
            f"{abs(call.at - begun):.0f} s {'before' if call.at < begun else 'after'} this wait "
            f"began: {call.error}"
            for call in self.failed
            if call.at > begun - FAILED_SECONDS
        )

    def ask_times(self, now: float) -> None:
        """Record that Ray is asked now when calls ended."""
        self.times_asked_at = now
        self.times_in_vain += 1

    def record_times(
        self, ended: Mapping[str, EndedCalls], changes: Sequence[int], now: float
    ) -> None:
        """Record how long ended calls of each name took, and when calls began and ended."""
        for name, told in ended.items():
            if self.method(name).apply(told):
                self._note_change(min(now, told.last_at))
        self._split_pauses(changes)

    def _note_change(self, at: float) -> None:
        """Record that Ray says that something began or ended: calls that follow each other at once
        have one title."""
        if at > self.changed_at:
            self.changed_at, self.fruitless = at, 0

    def apply_picture(
        self,
        picture: JobPicture | None,
        now: float,
        notes: tuple[str, ...],
        calls: RayCalls,
    ) -> None:
        """Apply the newest look (None if it shows nothing of the job); what it no longer shows is
        dropped. ``notes`` say what could not be seen."""
        looked_before, self.looked_at = self.looked_at, now
        self.notes, self.free_on = notes, _free_of_asked(calls, self.id)
        self.missing = missing_of(calls, self.id)
        self.failed = calls.failed or self.failed
        self.wakers = calls.wakers
        called = {call.actor for call in calls.calls}
        lent = (one.job for one in calls.actors if one.job != self.id and one.id in called)
        self.lenders = tuple(dict.fromkeys((*lent, *self.lenders)))[:MOST_LENDERS]
        self.fruitless += 1
        self.record_times(calls.ended, calls.changes, now)
        begun = (call.since or 0.0 for call in calls.calls if call.state == "running")
        self._note_change(min(now, max(begun, default=0.0)))
        if not calls.problem:
            self.long_calls.apply(running_since(calls.calls), now)
        self.long_calls.count_look(self.methods, now)
        if self.quiet_look_at < self.changed_at:
            self.quiet_look_at = now
        if picture is None:
            return
        worked = {
            fact.process
            for fact in picture.facts
            if (before := self.stacks.get(fact.process)) is not None
            and children_worked(before.children, fact.children)
        }
        known = {
            root_key(seen.root): seen
            for seen in self.roots
            if worked.isdisjoint(one.process for one in seen.root.processes)
        }
        self.roots = [seen_root(root, known.get(root_key(root)), now) for root in picture.roots]
        self.roots += self._unseen(known.values(), picture, calls)
        # A call that Ray does not list yet may have begun when the last one ended, or just now if
        # nobody asked when that was.
        latest = (self.changed_at if calls.ended else now) if self.tells_times else None
        self.looking = still_looking(
            self.looking, self.stacks, picture.facts, looked_before=looked_before or now
        )
        self.standing = {
            one.member.process: still_standing(
                first_look(one, latest, calls.at, now),
                None if one.member.process in worked else self.standing.get(one.member.process),
                one.begun,
                only_looks=self._looks_again(one.member.process),
            )
            for one in picture.standing
        }
        shown = {one.process for root in picture.roots for one in root.processes}
        shown |= {process for root in picture.roots for process in root.waiting[:1]}
        found = (fact for fact in picture.facts if fact.process in shown | self.standing.keys())
        self.stacks = {
            fact.process: same_sleep(fact, self.stacks.get(fact.process))
            for fact in islice(found, MOST_STACKS)
        }
        # All of them would be kept with every snapshot.
        self.picture = msgspec.structs.replace(picture, facts=())

    def _looks_again(self, process: ProcessId) -> bool:
        return process in self.looking and self.looking[process].again

    def _unseen(
        self, before: Iterable[SeenRoot], picture: JobPicture, calls: RayCalls
    ) -> Iterator[SeenRoot]:
        """The processes that could not go on when they were last seen, and live: a look without
        their stacks does not tell that they can."""
        seen = {fact.process for fact in picture.facts}
        living = {actor.id for actor in calls.actors if actor.state == "ALIVE"}
        for one in before:
            members = one.root.processes if one.root.kind == "broken" else ()
            unseen = not any(member.process in seen for member in members)
            if members and unseen and all(member.actor in living for member in members):
                yield one

    def wants_times(self) -> bool:
        """Whether the next look should also ask how long ended calls took: on the first look after
        some calls ended, or if Ray did not list the call in which a process stood in the last look,
        or too little is known of its method."""
        stood_in = {
            method_of(name) for one in self.standing.values() for name in one.member.methods
        }
        unknown = (
            name
            for name in stood_in
            if name not in self.methods or self.methods[name].told < RHYTHM
        )
        unlisted = (
            not one.listed and one.round_in is not None and one.member.role != "driver"
            for one in self.standing.values()
        )
        return not self.fruitless or any(unlisted) or any(unknown)

    def suspects_thread(self, now: float) -> bool:
        """Whether the last look showed a thread whose call is overdue and that has not yet been
        seen standing still for long enough."""
        for one in self.standing.values():
            longest = self.longest_call_of(one.member.does)
            if one.thread_still_since is None or one.began is None or longest is None:
                continue
            seen = is_sure_after(one.last_at - one.thread_still_since, longest)
            late = now - one.began > call_timeout(longest) - EARLY_SECONDS
            if late and not seen:
                return True
        return False

    @property
    def at_devices(self) -> set[ProcessId]:
        """The processes that waited for their devices in the last look."""
        return {process for process, one in self.standing.items() if one.at_device}

    def thread_limits(self) -> Iterator[float]:
        """Until when each thread that went round in the last look may go on so; the main threads
        are not among them."""
        for one in self.standing.values():
            timeout = self.longest_round_timeout(one.member.does)
            if one.restless_for is not None and one.began is not None and timeout is not None:
                yield one.began + timeout

    def awaiting_limits(self) -> Iterator[float]:
        """``coroutine_limits`` of the actors that awaited something of their own in the last
        look."""
        for seen in self.roots:
            for member in seen.root.processes if seen.root.why == OWN_WAIT else ():
                yield from (limit for _, limit in self.coroutine_limits(member))

    def lacking_limits(self) -> Iterator[float]:
        """Until when each of the calls that lacked something in the last look may wait for it."""
        for root in (seen.root for seen in self.roots):
            since = [step.since for step in root.chain if step.since is not None]
            if root.kind == "unheld" and root.lacks is not None and since:
                yield min(since) + given_timeout(root)

    def sleep_ends(self, process: ProcessId) -> float | None:
        """When the sleep ends at the latest in which a process was in the last look; None if it was
        in none that ends by itself, or that is not known, or it sleeps again each time."""
        fact = self.stacks.get(process)
        if fact is None or fact.activity not in _SLEEPS or self._looks_again(process):
            return None
        return fact.wakes_at

    def children_may_pause(self, process: ProcessId, seen: SeenRoot | StandingMember) -> bool:
        """Whether a process waits for children that have not worked in the looks that ``seen`` is
        of, but these are no further apart than the job itself may pause."""
        fact = self.stacks.get(process)
        waits = fact is not None and fact.children is not None
        return waits and seen.last_at - seen.first_at <= self.timeout

    def has_stood_since(self, process: ProcessId, began: float, ran_at: float) -> float:
        """Since when a process stands still in what ``began`` at some time, if its main thread ran
        last at ``ran_at``. Who waits for processes of its own may wake now and then to see whether
        they have sent anything: while these do not work, that is no movement."""
        if not self._looks_again(process):
            return ran_at
        return max(began, min(ran_at, self.looking[process].since))

    def seen_still_until(self, process: ProcessId, last_at: float, now: float) -> float:
        """Until when a process is known to stand still, which was last looked at at ``last_at``.
        What wakes now and then may have moved since, and only the next look tells."""
        return last_at if self._looks_again(process) else now

    def stuck_roots(self) -> list[SeenRoot]:
        """The roots in the last look that may hold the job up for ever."""
        return [seen for seen in self.roots if seen.root.kind not in ("works", "idle")]


_SLEEPS: frozenset[Activity] = frozenset(("sleep", "idle", "lock-wait"))
"""What a thread does in a wait whose end lets it go on. A call of Ray's ends at deadlines, too, at
which it looks for signals."""


def _free_of_asked(calls: RayCalls, job: str) -> dict[str, dict[str, float]]:
    """How much is free, by node id, of each resource that a job requests and has not been given."""
    asked = {
        name
        for call in calls.calls
        # Free resources on a node without the requested labels are of no use.
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

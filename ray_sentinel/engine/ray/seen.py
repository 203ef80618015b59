"""What several looks at a Ray job showed of one of its processes, or of what holds it up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ray_sentinel.evidence.movement import STILL, settled
from ray_sentinel.evidence.stacks.compare import (
    deadlines_between,
    movement,
    only_looked,
    wait_seconds,
)
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.progress import may_be_restless
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.waitgraph.picture import RootMember, StandingProcess, WaitRoot

SAME_SECONDS = 4.0
"""Least seconds between two looks that show the same, for the second to confirm the first."""


def is_sure_after(seconds: float, longest: float = 0.0) -> bool:
    """Whether looks so many seconds apart that show the same confirm each other. ``longest``: what
    the longest call took as a whole, if it is a call that they show."""
    return seconds >= max(SAME_SECONDS, longest)


class _SameInLooks(msgspec.Struct, kw_only=True):
    """What several looks at a job showed, from the first of them to the last."""

    first_at: float
    last_at: float

    def is_sure(self) -> bool:
        """Whether two looks, sufficiently far apart, showed the same."""
        return is_sure_after(self.last_at - self.first_at)


class SeenRoot(_SameInLooks, kw_only=True):
    """What held a job up in the last look."""

    root: WaitRoot
    held_up: bool = False
    """Whether any process waited for it in one of these looks, or whether it is the driver."""
    unmoved_since: float = 0.0
    """The first of the looks since which ``root.moves`` has been the same."""

    def has_not_moved(self, longest: float = 0.0) -> bool:
        """Whether ``root.moves`` has been the same for long enough to prove something.
        ``longest``: what the longest call took as a whole, if it is a call that stands still."""
        return is_sure_after(self.last_at - self.unmoved_since, longest)


class StandingMember(_SameInLooks, kw_only=True):
    """A process that stands still where it waits for nobody, or goes round in one place on a
    CPU."""

    member: RootMember
    place: str
    """What it does, and where, such as "sleeping in score (reward.py:88)"."""
    called_by: str
    """Who made the call that it runs."""
    began: float | None = None
    """When that call began, according to Ray; for a call that Ray did not list, the last moment at
    which it may have begun. None if Ray tells nothing of the job's calls."""
    listed: bool = True
    """Whether Ray listed the call."""
    round_in: StackFact | None = None
    """The place in which it went round in the first of the looks that show the same."""
    at_device: bool = False
    """Whether it waits for its device."""
    keeps_gil: bool = False
    """Whether it held the GIL at one line in all these looks."""
    switches: int | None = None
    """The same as in ``StandingProcess``."""
    restless_for: float | None = None
    """Seconds between the first and the last look, if the thread goes round and has not slept in
    between; None for a main thread, which agents watch."""
    thread_still_since: float | None = None
    """The first of the looks since which the thread has not run; None for a main thread."""
    asked_at: float = 0.0
    """When Ray was asked for its calls in the last of these looks. Whether the call has gone on
    since is not known."""


class Looking(msgspec.Struct, frozen=True, kw_only=True):
    """Since when a process that waits for its own has at most woken to see whether anything has
    come."""

    since: float
    first: StackFact
    """The look at that time."""
    wait: float = 0.0
    """Seconds for which one of its waits lasts at least, as far as looks showed."""
    again: bool = False
    """Whether it has woken, and a whole wait has passed: it begins again at each deadline."""


def seen_root(root: WaitRoot, before: SeenRoot | None, now: float) -> SeenRoot:
    """A root in the newest look, with what the looks before showed of it."""
    new = SeenRoot(root=root, held_up=_holds_up(root), first_at=now, last_at=now, unmoved_since=now)
    if before is not None:
        new.held_up, new.first_at = new.held_up or before.held_up, before.first_at
        if before.root.moves == root.moves:
            new.unmoved_since = before.unmoved_since
    return new


def _holds_up(root: WaitRoot) -> bool:
    """Whether a root holds others up. A process that cannot go on need not: nobody may wait for it,
    or only for any of several."""
    drives = any(member.role == "driver" for member in root.processes)
    return root.waiters > 0 or root.kind != "broken" or drives


def root_key(root: WaitRoot) -> tuple[object, ...]:
    """The same for a root that several looks show."""
    members = tuple(one.process for one in root.processes)
    # A build that has moved is another one; an actor stays the same.
    moves = None if members else root.moves
    return (root.kind, root.who, root.why, moves, members)


def first_look(
    one: StandingProcess, latest: float | None, asked_at: float, now: float
) -> StandingMember:
    """A standing process, as this look alone shows it. ``latest`` is when a call that Ray does not
    list may have begun at the latest."""
    fact = one.round_in
    return StandingMember(
        member=one.member,
        place=one.place,
        called_by=one.called_by,
        began=max(one.begun, default=latest),
        listed=bool(one.begun) or latest is None,
        round_in=fact,
        at_device=one.at_device,
        keeps_gil=fact is not None and fact.holds_gil is True,
        switches=one.switches,
        restless_for=None if one.switches is None or fact is None or fact.wanted is None else 0.0,
        thread_still_since=None if one.switches is None else now,
        asked_at=asked_at,
        first_at=now,
        last_at=now,
    )


def still_standing(
    new: StandingMember, old: StandingMember | None, begun: Sequence[float], *, only_looks: bool
) -> StandingMember:
    """A standing process, as this look and those before it show it. ``begun`` is when the calls
    began that Ray lists of it; ``only_looks``, whether it has done nothing since the last look but
    wake to see whether what it waits for has come."""
    if old is None:
        return new
    fact, before = new.round_in, old.round_in
    if fact is None or before is None:
        if fact is not before or old.place != new.place:
            return new
        ran = old.switches != new.switches and not only_looks
        if ran or new.switches is None:
            return msgspec.structs.replace(new, first_at=old.first_at)
        return _standing_thread(new, old, begun)
    # At a device, another line is another wait.
    moved = settled(movement((before, fact)), may_loop=not new.at_device)
    driver = new.member.role == "driver"
    begun_since = new.began is not None and new.began > old.first_at
    if new.switches is None and begun_since and not driver:
        return new  # it has the same title, and runs another call than in the first look
    restless_for = _restless_for(before, fact) if new.switches is not None else None
    if moved not in STILL or (restless_for is None) != (old.restless_for is None):
        return new
    return msgspec.structs.replace(
        new,
        first_at=old.first_at,
        round_in=before,
        restless_for=restless_for,
        keeps_gil=old.keeps_gil and new.keeps_gil and moved == "stuck",
    )


def _standing_thread(
    new: StandingMember, old: StandingMember, begun: Sequence[float]
) -> StandingMember:
    """A thread that has not run between two looks. It stands in a call that had begun by then: what
    the process has begun since runs elsewhere. If all its calls began later, it stands in none."""
    methods = tuple(name for name in new.member.methods if name in old.member.methods)
    still_since = old.thread_still_since
    by_then = [at for at in begun if still_since is not None and at <= still_since]
    return msgspec.structs.replace(
        new,
        member=msgspec.structs.replace(new.member, methods=methods or new.member.methods),
        began=max(by_then) if by_then else min(begun, default=new.began),
        first_at=old.first_at,
        thread_still_since=still_since,
    )


def _restless_for(before: StackFact, fact: StackFact) -> float | None:
    """Seconds between two looks at one thread without a rest; None if it has rested, or that is not
    known."""
    if before.tid != fact.tid or before.wanted is None or fact.wanted is None:
        return None
    seconds = fact.at - before.at
    return seconds if may_be_restless(fact.wanted - before.wanted, seconds) else None


def still_looking(
    known: Mapping[ProcessId, Looking],
    stacks: Mapping[ProcessId, StackFact],
    facts: Iterable[StackFact],
    *,
    looked_before: float,
) -> dict[ProcessId, Looking]:
    """Who only looks, from the look ``looked_before`` on, of which the ``stacks`` are, or since an
    earlier one."""
    found = {}
    for fact in facts:
        before = stacks.get(fact.process)
        if before is None:
            continue
        since = known.get(fact.process, Looking(since=looked_before, first=before))
        wait = max(since.wait, wait_seconds(before), wait_seconds(fact))
        if not only_looked(before, fact, wait):
            continue
        if deadlines_between(since.first, fact, wait) is None:
            since = Looking(since=looked_before, first=before)
        passed = deadlines_between(since.first, fact, wait) or 0.0
        again = passed >= 1.0 and since.first.switches != fact.switches
        found[fact.process] = msgspec.structs.replace(since, wait=wait, again=again)
    return found


def same_sleep(fact: StackFact, before: StackFact | None) -> StackFact:
    """The fact with the end of the sleep as the look before told it, if the thread has not been put
    on a CPU since: of some sleeps only is known how long they last, from each look on at most."""
    if before is None or before.tid != fact.tid or before.switches != fact.switches:
        return fact
    if fact.switches is None or before.wakes_at is None or fact.wakes_at is None:
        return fact
    return msgspec.structs.replace(fact, wakes_at=min(before.wakes_at, fact.wakes_at))

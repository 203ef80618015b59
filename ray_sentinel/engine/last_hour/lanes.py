"""What the ranks or roles of a job did over the last hour: one lane each, made of stretches.

Only changes are stored, and only the most recent ones, so that a job costs at most some 250 kB
(more where names are long), whatever its size and pace. In a job of many ranks, a lane represents a
node or consecutive ranks; ranks that do something else than most have a lane of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy

import msgspec

from ray_sentinel.engine.phases import TRAINING
from ray_sentinel.engine.ranks import RankView
from ray_sentinel.model.last_hour import DrawnLane, LaneStretch

HOUR = 3600.0
"""Seconds that a lane covers."""
LOOK_SECONDS = 2.0
"""Least seconds between two looks at the ranks: agents report about this often."""
UNSEEN_SECONDS = 10.0
"""Seconds between two looks above which it is unknown what the ranks did in between: all were gone,
or nobody looked."""
MOST_SINGLE = 64
"""Most ranks that have a lane each; in larger jobs, there are no more lanes of groups than this
either."""
MOST_ODD = 8
"""Most ranks of a larger job that have a lane of their own."""
MOST_LANES = MOST_SINGLE + 2 * MOST_ODD
MOST_STRETCHES = 8192
"""Most stretches of one job, shared by its lanes."""
MOST_TOGETHER = 200_000
"""Most stretches of all jobs, some 6 MB of a snapshot: 24 jobs with full lanes."""
MOST_OF_LANE = 1024
"""Most stretches of one lane."""
OPEN_STRETCHES = 4
"""How many of a lane's last stretches may still change; those before them stay as they are."""
MOST_NAME = 64
"""Most characters of a method, a phase or a role: programs name them, and each stretch has one."""
HELD_SECONDS = 2.0
"""Seconds for which a process must be stopped to be shown as stopped; a debugger may stop it for
less."""
GAP_SECONDS = 5.0
GAP_FACTOR = 3.0
"""Multiple of the usual step from which a step is a gap."""


class Stretch(msgspec.Struct, array_like=True):
    """A time in which a lane was of one kind. Times are on the coordinator's clock."""

    kind: str
    begin: float
    end: float


class Lanes(msgspec.Struct):
    """The lanes of one job."""

    lanes: dict[str, list[Stretch]] = {}
    """Stretches by "rank 3", "ranks 0 to 127", a role or a node's id; the most recently updated
    lane last."""
    odd: dict[int, float] = {}
    """Ranks of a large job that did something else than most, and when they last did."""
    looked_at: float = 0.0

    def record(self, ranks: Sequence[RankView], usual: float, idle_kind: str, now: float) -> None:
        """Record what living ranks do. ``usual`` is the usual duration of a step in seconds;
        ``idle_kind`` is the kind of a rank that works and declares nothing."""
        if now - self.looked_at < LOOK_SECONDS or not ranks:
            return
        before, self.looked_at = self.looked_at, now
        patience = max(GAP_SECONDS, GAP_FACTOR * usual)
        if now - before > UNSEEN_SECONDS:
            before = now
        # A process that makes place for another may still be there: the rank is the newest one.
        views = {view.rank.id.rank: view for view in ranks}
        numbers, kinds = list(views), _kinds(views.values(), idle_kind, patience, now)
        if len(kinds) <= MOST_SINGLE:
            for number, kind in zip(numbers, kinds, strict=True):
                self._note(f"rank {number}", kind, before, now)
            return
        self._note_odd(views, kinds, now)
        for number, kind in zip(numbers, kinds, strict=True):
            if number in self.odd:
                self._note(f"rank {number}", kind, before, now)
        for name, members in _grouped(views, kinds).items():
            self._note(name, _most(members), before, now)

    def call(self, method: str, begun: float, ended: float) -> None:
        """Record the end of an actor's call. Overlapping calls of its role are one stretch."""
        method = method[:MOST_NAME]
        lane = self._lane(role_of(method))
        for stretch in reversed(lane[-OPEN_STRETCHES:]):
            if stretch.kind == method and begun <= stretch.end and ended >= stretch.begin:
                stretch.begin = min(stretch.begin, begun)
                stretch.end = max(stretch.end, ended)
                return
        lane.append(Stretch(method, begun, ended))
        self._trim(lane, ended)

    @property
    def size(self) -> int:
        """The number of stretches."""
        return sum(map(len, self.lanes.values()))

    def clear(self) -> None:
        """Drop all stretches."""
        self.lanes, self.odd = {}, {}

    def copied(self) -> Lanes:
        """A copy for ``drawn`` that no later event changes; it shares what can change no more."""
        return Lanes(
            lanes={
                name: [*lane[:-OPEN_STRETCHES], *map(copy, lane[-OPEN_STRETCHES:])]
                for name, lane in self.lanes.items()
            }
        )

    def touches(self, begin: float) -> bool:
        """Whether ``drawn`` shows anything of the hour since ``begin``."""
        return any(
            _is_within(stretch, begin) for lane in self.lanes.values() for stretch in reversed(lane)
        )

    def _note(self, name: str, kind: str, before: float, now: float) -> None:
        lane = self._lane(name)
        # It has been of this kind for some time when it is seen.
        begun = now
        if lane and lane[-1].end >= before and before < now:
            lane[-1].end = now
            if lane[-1].kind == kind:
                return
        lane.append(Stretch(kind, begun, now))
        self._trim(lane, now)

    def _note_odd(self, views: Mapping[int, RankView], kinds: Sequence[str], now: float) -> None:
        """Record the ranks that do something else than most, those furthest behind first."""
        most = _most(kinds)
        others = sorted(
            (view.advanced_at, number)
            for (number, view), kind in zip(views.items(), kinds, strict=True)
            if kind != most
        )
        for _, rank in others[:MOST_ODD]:
            self.odd.pop(rank, None)
            self.odd[rank] = now
        while len(self.odd) > MOST_ODD:
            del self.odd[next(iter(self.odd))]

    def _lane(self, name: str) -> list[Stretch]:
        new = name not in self.lanes
        lane = self.lanes[name] = self.lanes.pop(name, [])
        while len(self.lanes) > MOST_LANES:
            del self.lanes[next(iter(self.lanes))]
        if new:
            # Lanes that use more room make room for it.
            for other in self.lanes.values():
                del other[: -(MOST_STRETCHES // len(self.lanes))]
        return lane

    def _trim(self, lane: list[Stretch], now: float) -> None:
        del lane[: -min(MOST_OF_LANE, MOST_STRETCHES // len(self.lanes))]
        while lane and lane[0].end < now - HOUR:
            del lane[0]

    def drawn(
        self,
        begin: float,
        running: Mapping[str, Iterable[Stretch]],
        host_of: Callable[[str], str] = str,
    ) -> tuple[tuple[str, ...], tuple[DrawnLane, ...]]:
        """The kinds and lanes of the hour since ``begin``. ``running`` is what goes on now, by
        lane; ``host_of`` names a node."""
        kinds: dict[str, int] = {}
        drawn = []
        for name in sorted({*self.lanes, *running}, key=_order):
            known = (*self.lanes.get(name, ()), *running.get(name, ()))
            stretches = tuple(
                _drawn(stretch, kinds.setdefault(stretch.kind, len(kinds)), begin)
                for stretch in known
                if _is_within(stretch, begin)
            )
            if stretches:
                shown = name if _order(name)[1] >= 0 else host_of(name)
                drawn.append(DrawnLane(name=shown, stretches=stretches))
        return tuple(kinds), tuple(drawn)


def role_of(method: str) -> str:
    """The role in whose lane a method belongs."""
    return method.partition(".")[0]


def _is_within(stretch: Stretch, begin: float) -> bool:
    return stretch.end >= begin and stretch.begin <= begin + HOUR


def _drawn(stretch: Stretch, kind: int, begin: float) -> LaneStretch:
    # After a clock was set back, some stretches end in the future.
    first, last = (
        min(max(0, round(10 * (at - begin))), round(10 * HOUR))
        for at in (stretch.begin, stretch.end)
    )
    return kind, first, max(0, last - first)


def _order(name: str) -> tuple[bool, int, str]:
    """A sort key that puts ranks, by their numbers, before groups."""
    word, _, number = name.partition(" ")
    numbered = word in {"rank", "ranks"}
    first = number.partition(" ")[0] if numbered else ""
    return word != "rank", int(first) if first.isdecimal() else -1, name


def _kinds(views: Iterable[RankView], idle_kind: str, patience: float, now: float) -> Sequence[str]:
    # Among thousands of ranks, hardly any does anything but make progress, which is quick to see.
    return [
        idle_kind
        if now - view.advanced_at <= patience
        and not view.state_since
        and not view.looks
        and ((progress := view.snapshot.progress) is None or progress.phase in TRAINING)
        else _kind(view, idle_kind, patience, now)
        for view in views
    ]


def _kind(view: RankView, idle_kind: str, patience: float, now: float) -> str:
    if any(view.held(state, now) >= HELD_SECONDS for state in ("stopped", "blocked")):
        return "stopped"
    if view.phase not in TRAINING:
        return view.phase[:MOST_NAME]
    look = view.looks[-1] if view.looks else None
    if look is not None and look.at >= view.moved_at and look.waits_for_others:
        return "wait"
    moved_at = view.advanced_at if view.counts_steps else max(view.moved_at, view.advanced_at)
    return "gap" if now - moved_at > patience else idle_kind


def _most(kinds: Sequence[str]) -> str:
    """What most of them do."""
    ((kind, _),) = Counter(kinds).most_common(1)
    return kind


def _grouped(views: Mapping[int, RankView], kinds: Sequence[str]) -> dict[str, list[str]]:
    """What ranks do by node, or with many nodes by consecutive ranks, because a node that is lost
    or replaced must not change the other groups."""
    if len({view.node for view in views.values()}) <= MOST_SINGLE:
        by_node: dict[str, list[str]] = {}
        for view, kind in zip(views.values(), kinds, strict=True):
            by_node.setdefault(view.node, []).append(kind)
        return by_node
    size = -(-(1 + max(views)) // MOST_SINGLE)
    blocks: dict[int, list[str]] = {}
    for number, kind in zip(views, kinds, strict=True):
        blocks.setdefault(number // size, []).append(kind)
    return {
        f"ranks {block * size} to {(block + 1) * size - 1}": known
        for block, known in blocks.items()
    }

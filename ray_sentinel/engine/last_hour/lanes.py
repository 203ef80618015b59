"""What the ranks or roles of a job did over the last hour: one lane each, of stretches.

Only changes are remembered, and of too many the last ones, so that a job costs at most some 250 kB
whatever its size and its pace. Of a job of many ranks a lane is that of a node or of some nodes;
the ranks that do another thing than most have one of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from ray_sentinel.engine.phases import TRAINING
from ray_sentinel.engine.ranks import RankView
from ray_sentinel.model.lanes import DrawnLane, LaneStretch

HOUR = 3600.0
NODES = " … "
"""Between the first and the last node of a group."""
LOOK_SECONDS = 2.0
"""Between two looks at the ranks: agents report as often."""
MOST_SINGLE = 64
"""Ranks that have a lane each; lanes of groups are no more either."""
MOST_ODD = 8
"""Ranks of a larger job that have a lane of their own."""
MOST_LANES = MOST_SINGLE + 2 * MOST_ODD
MOST_STRETCHES = 8192
"""Of one job, shared by its lanes."""
MOST_OF_LANE = 1024
HELD_SECONDS = 2.0
"""A process that is stopped for a shorter time, by a debugger say, is not told of."""
GAP_SECONDS = 5.0
GAP_FACTOR = 3.0
"""Times the usual step: a longer one is a gap."""


class Stretch(msgspec.Struct, array_like=True):
    """A time in which a lane was of one kind. Times are the coordinator's."""

    kind: str
    begin: float
    end: float


class Lanes(msgspec.Struct):
    """Of one job."""

    lanes: dict[str, list[Stretch]] = {}
    """By "rank 3", by a role, or by the ids of a group's first and last node; the one that was told
    of last at the end."""
    odd: dict[int, float] = {}
    """Ranks of a large job that did another thing than most, and when last."""
    looked_at: float = 0.0

    def look(self, ranks: Sequence[RankView], usual: float, idle_kind: str, now: float) -> None:
        """See what living ranks do. ``usual``: seconds of a step; ``idle_kind``: what a rank does
        that works and declares nothing."""
        if now - self.looked_at < LOOK_SECONDS or not ranks:
            return
        before, self.looked_at = self.looked_at, now
        patience = max(GAP_SECONDS, GAP_FACTOR * usual)
        kinds = [(view, _kind(view, idle_kind, patience, now)) for view in ranks]
        if len(kinds) <= MOST_SINGLE:
            for view, kind in kinds:
                self._note(f"rank {view.rank.id.rank}", kind, before, now)
            return
        self._note_odd(kinds, now)
        for view, kind in kinds:
            if view.rank.id.rank in self.odd:
                self._note(f"rank {view.rank.id.rank}", kind, before, now)
        for name, members in _grouped(kinds).items():
            self._note(name, _most(members), before, now)

    def call(self, method: str, begun: float, ended: float) -> None:
        """An actor's call is over: those of its role that overlap are one stretch."""
        lane = self._lane(method.partition(".")[0])
        for stretch in lane[-1:-5:-1]:
            if stretch.kind == method and begun <= stretch.end and ended >= stretch.begin:
                stretch.begin = min(stretch.begin, begun)
                stretch.end = max(stretch.end, ended)
                return
        lane.append(Stretch(method, begun, ended))
        self._trim(lane, ended)

    def _note(self, name: str, kind: str, before: float, now: float) -> None:
        lane = self._lane(name)
        # It has been of this kind for some time when it is seen.
        begun = now
        if lane and lane[-1].end >= before:
            lane[-1].end = now
            if lane[-1].kind == kind:
                return
        lane.append(Stretch(kind, begun, now))
        self._trim(lane, now)

    def _note_odd(self, kinds: Iterable[tuple[RankView, str]], now: float) -> None:
        """The ranks that do another thing than most, those furthest behind first."""
        pairs = list(kinds)
        most = _most([kind for _, kind in pairs])
        others = sorted(
            (view.advanced_at, view.rank.id.rank) for view, kind in pairs if kind != most
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
            # Those that had more room make place.
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
        """The kinds and the lanes since ``begin``; ``running``: what goes on now, by lane;
        ``host_of`` names a node."""
        kinds: dict[str, int] = {}
        drawn = []
        for name in sorted({*self.lanes, *running}, key=_order):
            known = (*self.lanes.get(name, ()), *running.get(name, ()))
            stretches = tuple(
                _drawn(stretch, kinds.setdefault(stretch.kind, len(kinds)), begin)
                for stretch in known
                if stretch.end >= begin
            )
            if stretches:
                shown = NODES.join(map(host_of, name.split(NODES)))
                drawn.append(DrawnLane(name=shown, stretches=stretches))
        return tuple(kinds), tuple(drawn)


def _drawn(stretch: Stretch, kind: int, begin: float) -> LaneStretch:
    first = max(0, round(10 * (stretch.begin - begin)))
    return kind, first, max(0, round(10 * (stretch.end - begin)) - first)


def _order(name: str) -> tuple[bool, int, str]:
    """Ranks by their numbers, before groups."""
    word, _, number = name.partition(" ")
    single = word == "rank" and number.isdecimal()
    return not single, int(number) if single else 0, name


def _kind(view: RankView, idle_kind: str, patience: float, now: float) -> str:
    if any(view.held(state, now) >= HELD_SECONDS for state in ("stopped", "blocked")):
        return "stopped"
    if view.phase not in TRAINING:
        return view.phase
    look = view.looks[-1] if view.looks else None
    if look is not None and look.at >= view.moved_at and look.waits_for_others:
        return "wait"
    if now - (view.advanced_at if view.counts_steps else view.moved_at) > patience:
        return "gap"
    return idle_kind


def _most(kinds: Sequence[str]) -> str:
    """What most do."""
    ((kind, _),) = Counter(kinds).most_common(1)
    return kind


def _grouped(kinds: Iterable[tuple[RankView, str]]) -> dict[str, list[str]]:
    """What ranks do, by node; with many nodes by some that follow each other."""
    by_node: dict[str, list[str]] = {}
    for view, kind in kinds:
        by_node.setdefault(view.node, []).append(kind)
    nodes = list(by_node)
    size = -(-len(nodes) // MOST_SINGLE)
    blocks = (nodes[at : at + size] for at in range(0, len(nodes), size))
    return {
        NODES.join(dict.fromkeys((block[0], block[-1]))): [
            kind for node in block for kind in by_node[node]
        ]
        for block in blocks
    }

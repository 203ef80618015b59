"""Groups whose transfers are slow, compared with groups that do the same.

The last rank to reach a collective waits for nobody in it: how long its device stays is the time of
the transfer itself. Tensor, data or pipeline parallel groups of one size that move the same amount
between as many hosts should take the same time; one that always takes longer has a slow link.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from ray_sentinel.evidence.flight_recorder.entry import Signature
from ray_sentinel.evidence.minority import most_odd
from ray_sentinel.evidence.stragglers.arrivals import Call, Calls, Floats
from ray_sentinel.model.rank_names import name_ranks

LEAST_GROUPS = 3
"""Least number of groups that do the same: of two, nobody can say which is the slow one."""
LEAST_TRANSFERS = 8
"""Least number of transfers of each group: fewer show no habit."""
LEAST_RATIO = 1.25
"""How many times the median of all groups that move the same a slow group must take, at least."""

_Like = tuple[Signature, int, int]
"""What is moved, among how many ranks, and on how many hosts."""


class SlowLink(msgspec.Struct, frozen=True, kw_only=True):
    """The group whose transfers are slow."""

    ranks: tuple[int, ...]
    host: str = ""
    """The only host that all slow groups have in common and no other group uses; empty where there
    is none."""
    seconds: float
    """Seconds lost in all transfers of the slowest group."""
    evidence: tuple[str, ...]


class _Group(msgspec.Struct, eq=False):
    name: str
    ranks: tuple[int, ...]
    hosts: frozenset[str]
    seconds: Floats

    @property
    def usual(self) -> float:
        return float(np.median(self.seconds))


def slow_link(calls: Calls, hosts: Mapping[int, str]) -> SlowLink | None:
    """The slow link; None if devices were not timed, nothing can be compared, or nothing stands
    out."""
    found = [_slow(alike) for alike in _families(calls, hosts).values()]
    links = [link for link in found if link is not None]
    return max(links, key=lambda link: link.seconds, default=None)


def _families(calls: Calls, hosts: Mapping[int, str]) -> dict[_Like, list[_Group]]:
    families: dict[_Like, list[_Group]] = {}
    for name, of in calls.items():
        ranks = tuple(sorted(of))
        if len(ranks) < 2:
            continue
        there = frozenset(hosts[rank] for rank in ranks if rank in hosts)
        for signature, seconds in _transfers([of[rank] for rank in ranks]).items():
            if len(seconds) >= LEAST_TRANSFERS:
                group = _Group(name, ranks, there, np.array(seconds))
                families.setdefault((signature, len(ranks), len(there)), []).append(group)
    return families


def _transfers(of: Sequence[Mapping[int, Call]]) -> dict[Signature, list[float]]:
    """Seconds that each collective itself took: the shortest stay in it."""
    found: dict[Signature, list[float]] = {}
    for number in sorted(set.intersection(*map(set, of))):
        members = [calls[number] for calls in of]
        timed = all(math.isfinite(call.duration) for call in members)
        if timed and len({call.signature for call in members}) == 1:
            shortest = min(call.duration for call in members)
            found.setdefault(members[0].signature, []).append(shortest)
    return found


def _slow(alike: Sequence[_Group]) -> SlowLink | None:
    if len(alike) < LEAST_GROUPS:
        return None
    usual = float(np.median([group.usual for group in alike]))
    slow = [group for group in alike if group.usual >= LEAST_RATIO * usual]
    rest = [group for group in alike if group not in slow]
    if not slow or len(slow) > most_odd(len(alike)):
        return None
    high = float(np.percentile(np.concatenate([group.seconds for group in rest]), 75))
    slow = [group for group in slow if float(np.percentile(group.seconds, 25)) > high]
    if not slow:
        return None
    worst = max(slow, key=lambda group: group.usual)
    shared = frozenset.intersection(*(group.hosts for group in slow))
    only = shared - frozenset().union(*(group.hosts for group in rest))
    return SlowLink(
        ranks=tuple(sorted({rank for group in slow for rank in group.ranks})),
        host=next(iter(only)) if len(only) == 1 else "",
        seconds=float(np.sum(worst.seconds - usual)),
        evidence=tuple(
            f"transfers among {name_ranks(group.ranks)} ({group.name}) take "
            f"{1000 * group.usual:.3g} ms, {group.usual / usual:.2f} times the median of "
            f"{len(alike)} groups that move the same"
            for group in slow
        ),
    )

"""The process groups of each job, as its flight recorders last reported them.

Neither the environment nor a rank's record says which groups a rank is in, and NCCL's RAS counts
communicators without naming their ranks. So groups are known only once recorders were read: in a
case, and in the search for stragglers, where a job uses it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping

import msgspec

from ray_sentinel.errors import InputError
from ray_sentinel.evidence.flight_recorder.group_ids import Kind
from ray_sentinel.evidence.flight_recorder.groups import ProcessGroup, identify
from ray_sentinel.evidence.flight_recorder.reduced import read
from ray_sentinel.model.identity import Rank
from ray_sentinel.model.process_groups import GroupKind, GroupsReport, JobGroups
from ray_sentinel.text import one_line

FRESH_SECONDS = 600.0
"""For which the groups of an attempt are not worked out again from as many dumps: it opens its
groups when it starts."""
MOST_JOBS = 16
"""Most jobs whose groups are kept; the oldest go first."""
MOST_KINDS = 8
"""Most kinds of groups of one job; those with the most groups are kept."""
MOST_NAME = 60
"""Most characters of a kind's name, which its job chose."""
UNNAMED = frozenset({"", "undefined"})


class GroupBook:
    """May be called from any thread."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, int], JobGroups] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, ranks: Iterable[Rank], dumps: Mapping[int, bytes], now: float) -> None:
        """Note the groups in the dumps (reduced, by rank) of some ranks of one job."""
        first = next(iter(ranks), None)
        if first is None:
            return
        key = (first.id.job, first.id.attempt)
        with self._lock:
            known = self._known.get(key)
        if known is not None and not _is_better(len(dumps), now, known):
            return
        if not (kinds := kinds_of(dumps, first.world_size)):
            return
        told = JobGroups(job=key[0], attempt=key[1], at=now, ranks=len(dumps), kinds=kinds)
        with self._lock:
            self._known.pop(key, None)
            self._known[key] = told
            while len(self._known) > MOST_JOBS:
                self._known.popitem(last=False)

    def report(self, shift: float = 0.0) -> GroupsReport:
        """What is known; ``shift`` is added to times, to have them on the wall clock."""
        with self._lock:
            known = tuple(self._known.values())
        return GroupsReport(
            jobs=tuple(msgspec.structs.replace(one, at=one.at + shift) for one in known)
        )


def _is_better(dumps: int, now: float, known: JobGroups) -> bool:
    return dumps > known.ranks or (dumps == known.ranks and now - known.at >= FRESH_SECONDS)


def kinds_of(dumps: Mapping[int, bytes], world_size: int | None = None) -> tuple[GroupKind, ...]:
    """The kinds of groups that distinguish ranks, those with the most groups first: a group of all
    ranks distinguishes nothing, nor do groups of a single rank."""
    found = {}
    for rank, data in dumps.items():
        try:
            found[rank] = read(rank, data)
        except InputError:
            continue  # nothing is known about this one
    by_kind: dict[Kind, list[ProcessGroup]] = {}
    for group in identify(found, world_size).groups:
        by_kind.setdefault(group.kind, []).append(group)
    telling = [some for some in by_kind.values() if _is_informative(some)]
    telling.sort(key=lambda some: -len(some))
    names: dict[str, int] = {}
    kinds = []
    for some in telling[:MOST_KINDS]:
        told = one_line(some[0].desc, MOST_NAME)
        name = told if told not in UNNAMED else f"{len(some[0].members)} ranks"
        names[name] = names.get(name, 0) + 1
        kinds.append(
            GroupKind(
                name=name if names[name] == 1 else f"{name} {names[name]}",
                groups=tuple(sorted(tuple(sorted(group.members)) for group in some)),
            )
        )
    return tuple(kinds)


def _is_informative(groups: list[ProcessGroup]) -> bool:
    members = [rank for group in groups for rank in group.members]
    return (
        len(groups) > 1
        and max(len(group.members) for group in groups) > 1
        and len(members) == len(set(members))
    )

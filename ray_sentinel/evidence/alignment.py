"""Whose calls are not those of its equals.

Equals run one program, so they make one sequence of calls, and each is at some point of it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import combinations, pairwise
from typing import TypeVar

Process = TypeVar("Process")
Key = TypeVar("Key", bound=Hashable)
Stand = tuple[Hashable, frozenset[tuple[Key, int]]]
"""Who its equals are, and how many calls of each kind a process has made."""
ComesFirst = Callable[[tuple[Key, int], tuple[Key, int], list[Process]], bool | None]
"""Whether the first call precedes the second in the program of some processes; None if nothing
shows it."""
MOST_STANDS = 256
"""Most different stands that are compared in pairs; if there are more, nobody is the exception."""


def odd_ones(
    stands: Mapping[Stand[Key], Sequence[Process]],
    comes_first: ComesFirst[Key, Process] | None = None,
) -> list[Process]:
    """The processes without which all equals lie on one sequence of calls; empty if that is
    ambiguous.

    A process that has made more calls of one kind than an equal, and fewer of another, made a
    different call. If only two contradict each other, the order in which their equals made the two
    calls decides.
    """
    if in_order(stands) or len(stands) > MOST_STANDS:
        return []
    conflicts = _conflicts(stands)
    odd: list[Process] = []
    while any(conflicts.values()):
        against = {s: sum(len(stands[o]) for o in others) for s, others in conflicts.items()}
        most = max(against.values())
        worst = [stand for stand, count in against.items() if count == most]
        if any(other in worst for stand in worst for other in conflicts[stand]):
            worst = [s for s in worst if _outvoted(s, conflicts, stands, comes_first)]
        if not worst:
            return []
        for stand in worst:
            odd += stands[stand]
            for other in conflicts.pop(stand):
                conflicts.get(other, set()).discard(stand)
    return odd


def in_order(stands: Iterable[Stand[Key]]) -> bool:
    """Whether those with the same equals and counters have gone through the same calls, some of
    them farther; False if other counters would have to be compared, too."""
    alike: dict[Hashable, list[dict[Key, int]]] = {}
    for role, counts in stands:
        alike.setdefault(role, []).append(dict(counts))
    for found in alike.values():
        if any(counts.keys() != found[0].keys() for counts in found):
            return False
        found.sort(key=lambda counts: sum(counts.values()))
        if any(less[key] > more[key] for less, more in pairwise(found) for key in less):
            return False
    return True


def _conflicts(stands: Iterable[Stand[Key]]) -> dict[Stand[Key], set[Stand[Key]]]:
    """By each stand the equals that cannot lie on one sequence of calls with it."""
    made = {stand: dict(stand[1]) for stand in stands}
    found: dict[Stand[Key], set[Stand[Key]]] = {stand: set() for stand in made}
    for one, other in combinations(made, 2):
        if one[0] == other[0] and all(_apart(made[one], made[other])):
            found[one].add(other)
            found[other].add(one)
    return found


def _apart(mine: Mapping[Key, int], theirs: Mapping[Key, int]) -> tuple[list[Key], list[Key]]:
    """The kinds of calls of which the first has made more than the second, and fewer."""
    both = [key for key in mine if key in theirs]
    return (
        [key for key in both if mine[key] > theirs[key]],
        [key for key in both if mine[key] < theirs[key]],
    )


def _outvoted(
    stand: Stand[Key],
    conflicts: Mapping[Stand[Key], set[Stand[Key]]],
    stands: Mapping[Stand[Key], Sequence[Process]],
    comes_first: ComesFirst[Key, Process] | None,
) -> bool:
    """Whether equals say, in all its conflicts, that it left out or added a call: it has made one
    before which they make one that it has not made."""
    if comes_first is None or not conflicts[stand]:
        return False
    voters = [
        process
        for other, processes in stands.items()
        if other[0] == stand[0] and not conflicts.get(other)
        for process in processes
    ]
    mine = dict(stand[1])
    for other in conflicts[stand]:
        theirs = dict(other[1])
        ahead, behind = _apart(mine, theirs)
        if not any(
            comes_first((missed, mine[missed] + 1), (made, theirs[made] + 1), voters)
            for made in ahead
            for missed in behind
        ):
            return False
    return True

"""Maps each rank's own group numbers to groups.

``pg_status`` and an entry's ``pg_id`` carry each rank's own numbers; groups are known by name. An
entry has both and so links them; between two known links, both lists are in the order of creation.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from ray_sentinel.evidence.flight_recorder.dump import RankDump

Kind = tuple[str, int, int]
"""What groups of one role have in common on different ranks: description, id of the gaps between
neighbouring members, index among this rank's groups with the same first two."""

Local = dict[tuple[str, str], int]
"""(Name, description) of one rank's group → group id."""

Ties = dict[int, dict[int, int]]
"""Rank → its own number of a group → group id."""


def creation_order(name: str) -> tuple[int, int, str]:
    """Sort key: names that are counters in numerical order, then names that are hashes."""
    return (0, int(name), "") if name.isdecimal() and len(name) < 18 else (1, 0, name)


def find(local: Local, group: tuple[str, str]) -> int | None:
    """The group that an entry names: by name and description, or else by a name used only once."""
    if group in local:
        return local[group]
    same = {ident for (name, _), ident in local.items() if name == group[0]}
    return same.pop() if len(same) == 1 and not group[1] else None


def tie(dumps: Mapping[int, RankDump], by_name: dict[int, Local], kinds: list[Kind]) -> Ties:
    """For every rank, its own group number → group id. ``kinds`` are by group id."""
    ties = {rank: _by_entries(dump, by_name[rank]) for rank, dump in dumps.items()}
    _by_place(dumps, by_name, ties)
    for rank, dump in dumps.items():
        _by_order(dump, by_name[rank], ties[rank])
    _by_peers(dumps, by_name, ties, kinds)
    return ties


def _by_entries(dump: RankDump, local: Local) -> dict[int, int]:
    found = (
        (entry.pg, find(local, entry.group)) for entry in [*dump.pending, *dump.last_done.values()]
    )
    return {pg: ident for pg, ident in found if ident is not None}


def _by_order(dump: RankDump, local: Local, ties: dict[int, int]) -> None:
    """By order between the known ties, where both lists are in the order of creation."""
    loose = sorted(pg for pg in dump.status if pg not in ties)
    if not loose:
        return
    tied = set(ties.values())
    rest = {key: ident for key, ident in local.items() if ident not in tied}
    if all(creation_order(name)[0] == 0 for name, _ in local):
        _align(ties, loose, local, rest)
    elif len(loose) == len(rest) == 1:
        ties[loose[0]] = next(iter(rest.values()))


def _align(ties: dict[int, int], loose: list[int], local: Local, rest: Local) -> None:
    """Both lists are in order of creation: match what lies between the same two known ties."""
    place = {ident: creation_order(name) for (name, _), ident in local.items()}
    fixed = sorted((pg, place[ident]) for pg, ident in ties.items() if ident in place)
    bounds = [(-1, (-1, 0, "")), *fixed, (1 << 60, (9, 0, ""))]
    waiting = sorted(rest.values(), key=lambda ident: place[ident])
    for (pg_low, low), (pg_high, high) in pairwise(bounds):
        numbers = [pg for pg in loose if pg_low < pg < pg_high]
        idents = [ident for ident in waiting if low < place[ident] < high]
        if len(numbers) == len(idents):
            ties.update(zip(numbers, idents, strict=True))


def _by_place(dumps: Mapping[int, RankDump], by_name: dict[int, Local], by_pg: Ties) -> None:
    """Ties still missing, where a number is the group's place among all that the rank knows.

    That is so if the configuration lists groups that were never used, which have no status.
    Believed if it holds for every tie that any rank shows.
    """
    places = {
        rank: [local[key] for key in sorted(local, key=lambda key: creation_order(key[0]))]
        for rank, local in by_name.items()
    }
    shown = [
        places[rank][pg] == ident if 0 <= pg < len(places[rank]) else False
        for rank, ties in by_pg.items()
        for pg, ident in ties.items()
    ]
    if not shown or not all(shown):
        return
    for rank, dump in dumps.items():
        if len(dump.status) == len(places[rank]):
            # Both list the same groups: the order tells, whatever the numbers are.
            continue
        for pg in dump.status:
            if pg not in by_pg[rank] and 0 <= pg < len(places[rank]):
                by_pg[rank][pg] = places[rank][pg]


def _by_peers(
    dumps: Mapping[int, RankDump],
    by_name: dict[int, Local],
    by_pg: Ties,
    kind_of: list[Kind],
) -> None:
    """Ties still missing, from ranks that created groups alike: equal numbers, equal kinds."""
    alike: dict[tuple[int, ...], dict[int, set[Kind]]] = {}
    for rank, dump in dumps.items():
        kinds = alike.setdefault(tuple(sorted(dump.status)), {})
        for pg, ident in by_pg[rank].items():
            kinds.setdefault(pg, set()).add(kind_of[ident])
    for rank, dump in dumps.items():
        loose = [pg for pg in dump.status if pg not in by_pg[rank]]
        if not loose:
            continue
        tied = set(by_pg[rank].values())
        rest = [ident for ident in set(by_name[rank].values()) if ident not in tied]
        kinds = alike[tuple(sorted(dump.status))]
        for pg in loose:
            fitting = [i for i in rest if {kind_of[i]} == kinds.get(pg)]
            if len(fitting) == 1:
                by_pg[rank][pg] = fitting[0]

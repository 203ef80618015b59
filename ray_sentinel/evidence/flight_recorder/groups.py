"""Which process groups there are, across ranks that name and number them each in their own way.

A group's name may differ between its members, or be shared by different groups; ``pg_id`` is each
rank's own creation number; gloo leaves the list of members out. What members agree on identifies a
group: its name and ranks, or its description and ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import msgspec

from ray_sentinel.evidence.flight_recorder.dump import GroupConfig, RankDump

Kind = tuple[str, int, int]
"""Description, a number for the distances between neighbouring members, and the how-manieth of that
sort: equal for groups that play the same part for different ranks."""


class Group(msgspec.Struct, kw_only=True):
    """One process group. ``members`` are global ranks in the order of the group."""

    id: int
    name: str
    desc: str
    members: tuple[int, ...]
    closed: bool = True
    """False where the members are only those seen in it, and there may be more."""
    kind: Kind = ("", 0, 0)
    positions: dict[int, int] = {}

    @property
    def label(self) -> str:
        """For people: "TENSOR_MODEL_PARALLEL_GROUP[8-11]"."""
        name = self.desc if self.desc not in ("", "undefined") else f"group {self.name}"
        return f"{name}[{say_ranks(self.members)}]"


class Groups(msgspec.Struct, kw_only=True):
    """All groups, and each rank's own numbers for them."""

    groups: list[Group]
    by_pg: dict[int, dict[int, int]]
    """rank → its own creation number → group id."""
    world: tuple[int, ...]
    """Every rank that any dump mentions."""
    by_rank: dict[int, list[int]] = {}

    def of(self, rank: int) -> list[Group]:
        """The groups that a rank is a member of."""
        return [self.groups[ident] for ident in self.by_rank.get(rank, ())]


def say_ranks(ranks: tuple[int, ...] | list[int], most: int = 12) -> str:
    """ "0-3,8": runs shortened, long lists cut."""
    ordered = sorted(set(ranks))
    runs: list[list[int]] = []
    for rank in ordered:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    texts = [str(a) if a == b else f"{a}-{b}" for a, b in runs]
    return ",".join(texts[:most]) + (f",... {len(ordered)} in all" if len(texts) > most else "")


class _Intern:
    """Small numbers for equal tuples: hashing 8,192 ranks at every look-up would be slow."""

    def __init__(self) -> None:
        self.sets: list[frozenset[int]] = []
        self._by_value: dict[tuple[int, ...], int] = {}
        self._by_object: dict[int, tuple[int, tuple[int, ...]]] = {}

    def __call__(self, value: tuple[int, ...]) -> int:
        # The tuple is kept beside its number, so its id stays its own.
        if (known := self._by_object.get(id(value))) is not None:
            return known[0]
        index = self._by_value.setdefault(value, len(self.sets))
        if index == len(self.sets):
            self.sets.append(frozenset(value))
        self._by_object[id(value)] = (index, value)
        return index


def identify(dumps: Mapping[int, RankDump], world_size: int | None = None) -> Groups:
    """Find the groups, and tie every rank's own group numbers to them."""
    world = _world(dumps, world_size)
    groups: list[Group] = []
    by_name = _configured(dumps, groups)
    _seen_only(dumps, groups, by_name, world)
    for group in groups:
        group.positions = {rank: place for place, rank in enumerate(group.members)}
    _name_kinds(groups, by_name)
    by_pg = {rank: _tie(dump, by_name[rank]) for rank, dump in dumps.items()}
    _tie_by_peers(dumps, by_name, by_pg, groups)
    by_rank: dict[int, list[int]] = {}
    for group in groups:
        for rank in group.members:
            by_rank.setdefault(rank, []).append(group.id)
    return Groups(groups=groups, by_pg=by_pg, world=world, by_rank=by_rank)


def _world(dumps: Mapping[int, RankDump], world_size: int | None) -> tuple[int, ...]:
    lists = {
        id(config.ranks): config.ranks
        for dump in dumps.values()
        for config in dump.configs.values()
        if config.ranks
    }
    ranks = set(dumps).union(*lists.values())
    return tuple(range(max(max(ranks, default=-1) + 1, world_size or 0)))


Local = dict[tuple[str, str], int]
"""One rank's (name, description) → group id."""


def _configured(dumps: Mapping[int, RankDump], groups: list[Group]) -> dict[int, Local]:
    """Groups whose members are written down."""
    intern = _Intern()
    claims: dict[tuple[str, int], dict[int, list[GroupConfig]]] = {}
    for rank, dump in dumps.items():
        for config in dump.configs.values():
            if config.ranks is None:
                continue
            ranks = intern(config.ranks)
            if rank in intern.sets[ranks]:
                claims.setdefault((config.desc, ranks), {}).setdefault(rank, []).append(config)
    by_name: dict[int, Local] = {rank: {} for rank in dumps}
    named: dict[tuple[str, int], int] = {}
    for (desc, ranks), claimed in claims.items():
        for label, members in _same_group(claimed).items():
            name = next(iter(members.values())).name
            # Members may describe a group differently; its name and ranks are enough.
            ident = named.get((name, ranks)) if label == name else None
            if ident is None:
                ident = len(groups)
                ranks_of = next(iter(members.values())).ranks or ()
                groups.append(Group(id=ident, name=name, desc=desc, members=ranks_of))
            named.setdefault((name, ranks), ident)
            for rank, config in members.items():
                by_name[rank][config.name, config.desc] = ident
    return by_name


def _same_group(
    claimed: dict[int, list[GroupConfig]],
) -> dict[str | int, dict[int, GroupConfig]]:
    """Groups among the claims to one description and one list of ranks: label → rank → config.

    Where all members use the same names, names tell the groups apart. Where names differ but each
    member knows equally many, they are the same groups in the order of creation.
    """
    names = [{config.name for config in configs} for configs in claimed.values()]
    counts = {len(configs) for configs in claimed.values()}
    result: dict[str | int, dict[int, GroupConfig]] = {}
    same_names = all(name == names[0] for name in names)
    for rank, configs in claimed.items():
        if same_names or len(counts) > 1:
            for config in configs:
                result.setdefault(config.name, {})[rank] = config
        else:
            for place, config in enumerate(sorted(configs, key=lambda c: creation_order(c.name))):
                result.setdefault(place, {})[rank] = config
    return result


def creation_order(name: str) -> tuple[int, int, str]:
    """Sort key: names that are counters in their order, names that are hashes after them."""
    return (0, int(name), "") if name.isdecimal() and len(name) < 18 else (1, 0, name)


def _seen_only(
    dumps: Mapping[int, RankDump],
    groups: list[Group],
    by_name: dict[int, Local],
    world: tuple[int, ...],
) -> None:
    """Groups that entries name but no configuration lists: members are those seen in them."""
    seen: dict[tuple[str, str], set[int]] = {}
    for rank, dump in dumps.items():
        for entry in [*dump.pending, *dump.last_done.values()]:
            if find(by_name[rank], entry.group) is None:
                seen.setdefault(entry.group, set()).add(rank)
    for (name, desc), ranks in seen.items():
        everyone = desc == "default_pg" or (name == "0" and desc in ("", "undefined"))
        ident = len(groups)
        groups.append(
            Group(
                id=ident,
                name=name,
                desc=desc,
                members=world if everyone else tuple(sorted(ranks)),
                closed=everyone,
            )
        )
        for rank in dumps if everyone else ranks:
            by_name[rank].setdefault((name, desc), ident)


def find(local: Local, group: tuple[str, str]) -> int | None:
    """The group that an entry names: by name and description, else by a name used once."""
    if group in local:
        return local[group]
    same = {ident for (name, _), ident in local.items() if name == group[0]}
    return same.pop() if len(same) == 1 and not group[1] else None


def _name_kinds(groups: list[Group], by_name: dict[int, Local]) -> None:
    intern = _Intern()
    for group in groups:
        ranks = group.members
        steps = intern(tuple(b - a for a, b in pairwise(ranks)))
        group.kind = (group.desc, steps, 0)
    plain = [group.kind for group in groups]
    for local in by_name.values():
        idents = set(local.values())
        if len({plain[ident] for ident in idents}) == len(idents):
            continue
        places: dict[Kind, int] = {}
        for ident in sorted(idents, key=lambda i: creation_order(groups[i].name)):
            place = places[plain[ident]] = places.get(plain[ident], -1) + 1
            kind = groups[ident].kind
            groups[ident].kind = (kind[0], kind[1], max(place, kind[2]))


def _tie(dump: RankDump, local: Local) -> dict[int, int]:
    """This rank's group numbers → groups: from its entries, then by order between those."""
    ties: dict[int, int] = {}
    for entry in [*dump.pending, *dump.last_done.values()]:
        ident = find(local, entry.group)
        if ident is not None:
            ties[entry.pg] = ident
    loose = sorted(pg for pg in dump.status if pg not in ties)
    if not loose:
        return ties
    tied = set(ties.values())
    rest = {key: ident for key, ident in local.items() if ident not in tied}
    if all(creation_order(name)[0] == 0 for name, _ in local):
        _align(ties, loose, local, rest)
    elif len(loose) == len(rest) == 1:
        ties[loose[0]] = next(iter(rest.values()))
    return ties


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


def _tie_by_peers(
    dumps: Mapping[int, RankDump],
    by_name: dict[int, Local],
    by_pg: dict[int, dict[int, int]],
    groups: list[Group],
) -> None:
    """Ties still missing, from ranks that created groups alike: equal numbers, equal kinds."""
    alike: dict[tuple[int, ...], dict[int, set[Kind]]] = {}
    for rank, dump in dumps.items():
        kinds = alike.setdefault(tuple(sorted(dump.status)), {})
        for pg, ident in by_pg[rank].items():
            kinds.setdefault(pg, set()).add(groups[ident].kind)
    for rank, dump in dumps.items():
        loose = [pg for pg in dump.status if pg not in by_pg[rank]]
        if not loose:
            continue
        tied = set(by_pg[rank].values())
        rest = [ident for ident in set(by_name[rank].values()) if ident not in tied]
        kinds = alike[tuple(sorted(dump.status))]
        for pg in loose:
            fitting = [i for i in rest if {groups[i].kind} == kinds.get(pg)]
            if len(fitting) == 1:
                by_pg[rank][pg] = fitting[0]

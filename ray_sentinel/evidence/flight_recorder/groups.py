"""The process groups, identified across ranks that each name and number them in their own way.

A group's name may differ between its members, or be shared by different groups; ``pg_id`` is each
rank's own creation number; gloo omits the list of members. What members agree on identifies a
group: its name and ranks, or its description and ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

import msgspec

from ray_sentinel.evidence.flight_recorder.dump import RankDump
from ray_sentinel.evidence.flight_recorder.group_ids import (
    Kind,
    Local,
    Ties,
    creation_order,
    find,
    tie,
)
from ray_sentinel.evidence.flight_recorder.tables import GroupConfig
from ray_sentinel.model.rank_names import runs


class ProcessGroup(msgspec.Struct, kw_only=True):
    """One process group. ``members`` are global ranks in the order of the group."""

    id: int
    name: str
    desc: str
    members: tuple[int, ...]
    closed: bool = True
    """The members are all known; False where they are only those seen in it, and there may be
    more."""
    kind: Kind = ("", 0, 0)
    positions: dict[int, int] = {}

    @property
    def label(self) -> str:
        """For people: "TENSOR_MODEL_PARALLEL_GROUP[8-11]"."""
        name = self.desc if self.desc not in ("", "undefined") else f"group {self.name}"
        return f"{name}[{format_ranks(self.members)}]"

    def numbered(self, number: int, call: str = "") -> str:
        """An operation of the group, for people: "all_reduce of 32 Float (default_pg[0-3] number
        13)", or only "default_pg[0-3] number 13" where the ``call`` is not told."""
        place = f"{self.label} number {number}"
        return f"{call} ({place})" if call else place


class ProcessGroups(msgspec.Struct, kw_only=True):
    """All groups, and each rank's own numbers for them."""

    groups: list[ProcessGroup]
    by_pg: Ties
    """Rank → its own creation number of a group → group id."""
    world: tuple[int, ...]
    """Every rank that any dump mentions."""
    by_rank: dict[int, list[int]] = {}

    def of(self, rank: int) -> list[ProcessGroup]:
        """The groups of which a rank is a member."""
        return [self.groups[ident] for ident in self.by_rank.get(rank, ())]


def format_ranks(ranks: Iterable[int], most: int = 12) -> str:
    """Ranks for people: "0-3,8", with runs abbreviated and long lists cut."""
    ordered = sorted(set(ranks))
    texts = runs(ordered)
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


def identify(dumps: Mapping[int, RankDump], world_size: int | None = None) -> ProcessGroups:
    """Find the groups, and map every rank's own group numbers to them."""
    world = _world(dumps, world_size)
    groups: list[ProcessGroup] = []
    by_name = _configured(dumps, groups)
    _seen_only(dumps, groups, by_name, world)
    for group in groups:
        group.positions = {rank: place for place, rank in enumerate(group.members)}
    _name_kinds(groups, by_name)
    by_pg = tie(dumps, by_name, [group.kind for group in groups])
    by_rank: dict[int, list[int]] = {}
    for group in groups:
        for rank in group.members:
            by_rank.setdefault(rank, []).append(group.id)
    return ProcessGroups(groups=groups, by_pg=by_pg, world=world, by_rank=by_rank)


def _world(dumps: Mapping[int, RankDump], world_size: int | None) -> tuple[int, ...]:
    lists = {
        id(config.ranks): config.ranks
        for dump in dumps.values()
        for config in dump.configs.values()
        if config.ranks
    }
    ranks = set(dumps).union(*lists.values())
    return tuple(range(max(max(ranks, default=-1) + 1, world_size or 0)))


def _configured(dumps: Mapping[int, RankDump], groups: list[ProcessGroup]) -> dict[int, Local]:
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
                groups.append(ProcessGroup(id=ident, name=name, desc=desc, members=ranks_of))
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


def _seen_only(
    dumps: Mapping[int, RankDump],
    groups: list[ProcessGroup],
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
            ProcessGroup(
                id=ident,
                name=name,
                desc=desc,
                members=world if everyone else tuple(sorted(ranks)),
                closed=everyone,
            )
        )
        for rank in dumps if everyone else ranks:
            by_name[rank].setdefault((name, desc), ident)


def _name_kinds(groups: list[ProcessGroup], by_name: dict[int, Local]) -> None:
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

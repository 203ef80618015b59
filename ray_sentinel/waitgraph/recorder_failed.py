"""Dumps that ranks left when their collectives had failed: whose call was wrong.

Once a connection breaks, every pending operation ends with an error. gloo's recorder marks those
"retired" like the ones that went well, so what is pending, and for whom, can no longer be read off.
What was called can.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from ray_sentinel.evidence.alignment import had_before, out_of_habit
from ray_sentinel.evidence.flight_recorder.entry import NEEDS_EVERYONE, Entry
from ray_sentinel.evidence.flight_recorder.signature_mismatch import (
    collectives,
    mismatch_facts,
    unlike,
)
from ray_sentinel.evidence.flight_recorder.world import World
from ray_sentinel.model.rank_names import name_ranks
from ray_sentinel.model.recorder import RecorderFacts
from ray_sentinel.waitgraph.recorder import explain, history_of, read_all

_NEED_ALL = frozenset({*NEEDS_EVERYONE, "all_to_all"})
_AHEAD = 2
"""How many of a group's last calls that need all members are looked at: the one that failed, and
the one before it, which a rank may have completed although it failed at a peer."""
_REACH = 4
"""Most of a group's last calls that are looked at, where few or none of them need all members."""


class _Call(NamedTuple):
    entry: Entry
    usual: bool | None
    """Whether the rank had made such a call before in that group; None where too few calls precede
    it to say."""


def explain_failed(
    dumps: Mapping[int, bytes], *, overrun: Collection[int] = (), world_size: int | None = None
) -> RecorderFacts:
    """Who made a different call, from the dumps (rank → pickle or JSON) of ranks that failed.

    ``overrun`` are the ranks that were sent more than they had asked for: each, or the peer that
    sent it, made a wrong call. They leave no dump themselves where that aborts the process. Never
    raises for what a dump holds.
    """
    read, problems = read_all(dumps, {})
    world = World(read, world_size, lambda rank: history_of(dumps, rank))
    forgets, mute = _forgets(world), set(overrun) - set(world.dumps)
    found = unlike(world)
    if not found and (forgets or mute):
        met = {rank: _met(world, rank) for rank in world.dumps}
        entries = {rank: [call.entry for call in calls] for rank, calls in met.items()}
        found = unlike(world, entries) or _unusual(world, met, mute)
    if found:
        return mismatch_facts(world, found, problems)
    if not forgets:
        return explain(dumps, world_size=world_size)
    return RecorderFacts(
        kind="cannot-tell",
        evidence=("what was left of the failed collectives shows no call unlike the others",),
        problems=tuple(problems),
        ranks=tuple(world.dumps),
    )


def _forgets(world: World) -> bool:
    """Whether a failed operation looks like one that went well."""
    return any(
        entry.library == "gloo" for rank in world.dumps for entry in collectives(world, rank)
    )


def _unusual(world: World, met: Mapping[int, list[_Call]], mute: set[int]) -> dict[int, str]:
    """The rank, among those without a dump and all their peers, that made a call which it never
    makes.

    Its groups need not be known: gloo's dumps do not list members.
    """
    if not mute or not set(world.groups.world) - mute <= set(met):
        return {}
    rank = out_of_habit({rank: [call.usual for call in calls] for rank, calls in met.items()}, mute)
    if rank is None:
        return {}
    if rank not in mute:
        odd = next(call.entry for call in met[rank] if call.usual is False)
        return {rank: f"called {world.title(rank, odd)}, which it never had in that group before"}
    others = name_ranks(met)
    return {rank: f"was sent more than it had asked for, and {others} called what they always do"}


def _met(world: World, rank: int) -> list[_Call]:
    """A rank's calls that may be those at which a peer failed, in the order of issue: in each group
    the last, and those before it that the rank could complete although the peer did not."""
    by_group: dict[int, list[Entry]] = {}
    for entry in world.history(rank):
        if not entry.p2p:
            by_group.setdefault(entry.pg, []).append(entry)
    met = []
    for made in by_group.values():
        ahead = 0
        for place in range(len(made) - 1, max(len(made) - _REACH, 0) - 1, -1):
            met.append(_Call(made[place], had_before(made[place], made[:place])))
            ahead += made[place].op in _NEED_ALL
            if ahead == _AHEAD:
                break
    return sorted(met, key=lambda call: call.entry.record)

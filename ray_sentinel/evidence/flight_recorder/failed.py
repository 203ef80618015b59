"""Dumps that ranks left when their collectives had failed: whose call was the wrong one.

Once a connection breaks, every pending operation ends with an error. gloo's recorder marks those
"retired" like the ones that went well, so what is pending, and for whom, can no longer be read off.
What was called can.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ray_sentinel.evidence.flight_recorder.entry import Entry
from ray_sentinel.evidence.flight_recorder.explain import explain, history_of, read_all
from ray_sentinel.evidence.flight_recorder.unlike import (
    collectives,
    mismatch_facts,
    some_ranks,
    unlike,
)
from ray_sentinel.evidence.flight_recorder.world import World
from ray_sentinel.model.recorder import RecorderFacts

_HABIT = 5
"""Calls in a group that make a habit."""


def explain_failed(
    dumps: Mapping[int, bytes], *, overrun: Collection[int] = (), world_size: int | None = None
) -> RecorderFacts:
    """Who called something else, from the dumps (rank → pickle or JSON) of ranks that failed.

    ``overrun`` are the ranks that were sent more than they had asked for: each, or the peer that
    sent it, made a wrong call. They leave no dump themselves where that aborts the process. Never
    raises for what a dump holds.
    """
    read, problems = read_all(dumps, {})
    world = World(read, world_size, lambda rank: history_of(dumps, rank))
    found = unlike(world) or _unusual(world, set(overrun) - set(world.dumps))
    if found:
        return mismatch_facts(world, found, problems)
    if not _forgets(world):
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


def _unusual(world: World, mute: set[int]) -> dict[int, str]:
    """Of ranks without a dump and all their peers, the one that called what it never does.

    Its groups need not be known: gloo's dumps do not list members.
    """
    if not mute or not set(world.groups.world) - mute <= set(world.dumps):
        return {}
    usual = {rank: _habitual(world, rank) for rank in world.dumps}
    odd = [rank for rank, calls in usual.items() if False in calls.values()]
    as_ever = [rank for rank, calls in usual.items() if calls and calls[max(calls)]]
    if len(odd) == 1 and (len(mute) == 1 or as_ever):
        return {odd[0]: _never_before(world, odd[0], usual[odd[0]])}
    if odd or len(mute) > 1 or len(as_ever) < len(usual):
        return {}
    (rank,) = mute
    others = some_ranks(list(world.dumps))
    return {rank: f"was sent more than it had asked for, and {others} called what they always do"}


def _never_before(world: World, rank: int, usual: Mapping[int, bool | None]) -> str:
    record = next(at for at, habit in usual.items() if habit is False)
    entry = next(e for e in collectives(world, rank) if e.record == record)
    group = world.group_of(rank, entry)
    where = f" ({group.label} number {entry.seq})" if group else ""
    return f"called {entry.title}, which it never had in that group before{where}"


def _habitual(world: World, rank: int) -> dict[int, bool | None]:
    """Whether a rank had made each of its latest calls before, in the same group, by the call's
    place in its order; None where too few calls precede it to say."""
    before: dict[int, list[Entry]] = {}
    for entry in world.history(rank):
        if not entry.p2p:
            before.setdefault(entry.pg, []).append(entry)
    return {
        call.record: _had_before(call, [e for e in before[call.pg] if e.record < call.record])
        for call in collectives(world, rank)
    }


def _had_before(call: Entry, earlier: list[Entry]) -> bool | None:
    if len(earlier) < _HABIT:
        return None
    alike = [entry for entry in earlier if entry.signature() == call.signature()]
    # Sizes of all-to-all tell nothing where they change by design.
    sizes = {_elements(entry) for entry in alike}
    of_one_size = len(alike) >= _HABIT and len(sizes) == 1
    return bool(alike) and not (of_one_size and _elements(call) not in sizes)


def _elements(call: Entry) -> tuple[int, int]:
    """Those that go in, and that come out."""
    return sum(call.numels[0]), sum(call.numels[1])

"""Ranks whose call differs from that of their peers, whether or not the calls completed.

Members of a group make the same call under the same number. A rank that made it with another size,
dtype or operation is wrong if the others agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ray_sentinel.evidence.flight_recorder.entry import Entry, Signature
from ray_sentinel.evidence.flight_recorder.groups import ProcessGroup, some_ranks
from ray_sentinel.evidence.flight_recorder.world import World
from ray_sentinel.model.recorder import RecorderCulprit, RecorderFacts

_CONFIDENCE = 0.9

Calls = dict[tuple[int, int], dict[int, Entry]]
"""(Group id, number) → rank → its call."""


def unlike(world: World, entries: Mapping[int, list[Entry]] | None = None) -> dict[int, str]:
    """Ranks whose call differs from that of most members, with the reason.

    ``entries`` are the calls of each rank to compare; by default its latest ones.
    """
    if entries is None:
        entries = {rank: collectives(world, rank) for rank in world.dumps}
    calls = _calls(world, entries)
    found: dict[int, str] = {}
    for (ident, seq), made in sorted(calls.items()):
        usual = _usual(world, calls, ident, seq)
        if usual is None:
            continue
        right = next(entry for entry in made.values() if entry.signature() == usual)
        peers = [rank for rank, entry in made.items() if entry.signature() == usual]
        for rank, entry in made.items():
            if entry.signature() != usual:
                found.setdefault(
                    rank,
                    f"called {entry.title} where {some_ranks(peers)} called {right.title} "
                    f"({world.group(ident).label} number {seq})",
                )
    return found


def _calls(world: World, entries: Mapping[int, list[Entry]]) -> Calls:
    """The collectives of every rank, by what must be one call."""
    calls: Calls = {}
    for rank, made in entries.items():
        for entry in made:
            group = world.group_of(rank, entry)
            if group is not None:
                calls.setdefault((group.id, entry.seq), {})[rank] = entry
    return calls


def _usual(world: World, calls: Calls, ident: int, seq: int) -> Signature | None:
    """What most members called, where not all called the same; None if that is not clear.

    Two members that contradict each other are judged by other groups of the same kind.
    """
    votes = Counter(entry.signature() for entry in calls[ident, seq].values())
    if len(votes) < 2:
        return None
    (first, most), (_, second) = votes.most_common(2)
    if most > second:
        return first
    elsewhere = _agreed(world, calls, world.group(ident), seq)
    backed = [signature for signature in votes if signature in elsewhere]
    return backed[0] if len(backed) == 1 else None


def _agreed(world: World, calls: Calls, group: ProcessGroup, seq: int) -> set[Signature]:
    """What other groups of a kind called under a number, of those whose members all agree."""
    agreed: set[Signature] = set()
    for (other, number), made in calls.items():
        if number == seq and other != group.id and world.group(other).kind == group.kind:
            voices = {entry.signature() for entry in made.values()}
            if len(voices) == 1 and len(made) > 1:
                agreed |= voices
    return agreed


def collectives(world: World, rank: int) -> list[Entry]:
    """A rank's latest collectives: the pending ones, and the last one of each group."""
    dump = world.dumps[rank]
    return [entry for entry in (*dump.last_done.values(), *dump.pending) if not entry.p2p]


def mismatch_facts(world: World, found: dict[int, str], problems: list[str]) -> RecorderFacts:
    """The explanation that names these ranks."""
    culprits = tuple(
        RecorderCulprit(rank=rank, kind="collective-mismatch", reason=found[rank])
        for rank in sorted(found)
    )
    return RecorderFacts(
        kind="collective-mismatch",
        culprits=culprits,
        confidence=_CONFIDENCE,
        evidence=tuple(f"rank {culprit.rank} {culprit.reason}" for culprit in culprits),
        problems=tuple(problems),
        ranks=tuple(world.dumps),
    )

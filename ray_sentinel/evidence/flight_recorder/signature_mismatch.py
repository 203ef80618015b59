"""Ranks whose call differs from that of their peers, whether or not the calls completed.

Members of a group make the same call under the same number. A rank that made it with another size,
dtype or operation is wrong if the others agree.
"""

from __future__ import annotations

from collections.abc import Mapping

from ray_sentinel.evidence.alignment import Called, differing
from ray_sentinel.evidence.flight_recorder.entry import Entry
from ray_sentinel.evidence.flight_recorder.world import World
from ray_sentinel.evidence.sentences import called_otherwise
from ray_sentinel.model.rank_names import name_ranks
from ray_sentinel.model.recorder import RecorderCulprit, RecorderFacts

_STRENGTH = 0.9


def unlike(world: World, entries: Mapping[int, list[Entry]] | None = None) -> dict[int, str]:
    """Ranks whose call differs from that of most members, with the reason.

    ``entries`` are the calls of each rank to compare; by default its latest ones. Members that
    contradict each other are judged by other groups of the same kind.
    """
    if entries is None:
        entries = {rank: collectives(world, rank) for rank in world.dumps}
    made: dict[tuple[int, int], dict[int, Entry]] = {}
    for rank, latest in entries.items():
        for entry in latest:
            if entry.op == "coalesced" and not entry.parts:
                continue  # its parts are not in the dump: what was called is not known
            if (group := world.group_of(rank, entry)) is not None:
                made.setdefault((group.id, entry.seq), {})[rank] = entry
    calls = (
        Called(rank, (ident, seq), entry.signature(), (world.group(ident).kind, seq))
        for (ident, seq), by_rank in sorted(made.items())
        for rank, entry in by_rank.items()
    )
    found: dict[int, str] = {}
    for one in differing(calls):
        ident, seq = one.operation
        by_rank = made[ident, seq]
        call = world.group(ident).numbered(seq, by_rank[one.process].title)
        usual = by_rank[one.usual[0]].title
        found.setdefault(one.process, called_otherwise(call, name_ranks(one.usual), usual))
    return found


def collectives(world: World, rank: int) -> list[Entry]:
    """A rank's latest collectives: the pending ones, and the last one of each group."""
    return [entry for entry in world.dumps[rank].kept if not entry.p2p]


def mismatch_facts(world: World, found: dict[int, str], problems: list[str]) -> RecorderFacts:
    """The explanation that names these ranks."""
    culprits = tuple(
        RecorderCulprit(rank=rank, kind="collective-mismatch", reason=found[rank])
        for rank in sorted(found)
    )
    return RecorderFacts(
        kind="collective-mismatch",
        culprits=culprits,
        strength=_STRENGTH,
        evidence=tuple(f"rank {culprit.rank} {culprit.reason}" for culprit in culprits),
        problems=tuple(problems),
        ranks=tuple(world.dumps),
    )

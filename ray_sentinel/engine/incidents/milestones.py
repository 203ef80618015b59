"""The timeline of an incident: what was observed on the way to the verdict, one step a line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ray_sentinel.engine.ranks import RankView
from ray_sentinel.model.incident import Milestone
from ray_sentinel.model.ras import RasFacts
from ray_sentinel.model.recorder import RecorderFacts
from ray_sentinel.model.stacks import StackFact

MOST = 32
"""Most milestones of one incident; of more, those in the middle are left out."""
FIRST = 8
"""How many of these are the first ones."""
MOST_RANKS = 8
"""Most ranks whose last progress is listed."""
_MOST_PLACES = 3
_MOST_WORDS = 60


def added(steps: Iterable[Milestone], *new: Milestone) -> tuple[Milestone, ...]:
    """The steps with the new ones added, in order and bounded in number."""
    known = sorted(dict.fromkeys((*steps, *new)), key=lambda step: step.at)
    return tuple(known if len(known) <= MOST else known[:FIRST] + known[FIRST - MOST :])


def of_round(
    at: float, number: int, facts: Sequence[StackFact], *, late: bool = False
) -> Milestone:
    """A round of stacks: ``round 1 of 4 ranks: 3 in all_reduce; rank 2 in read (data.py:7)``."""
    places: dict[str, list[StackFact]] = {}
    for fact in facts:
        places.setdefault(_place(fact), []).append(fact)
    groups = sorted(places.items(), key=lambda group: -len(group[1]))
    said = [f"{_who(found)} {place}" for place, found in groups[:_MOST_PLACES]]
    if len(groups) > _MOST_PLACES:
        said.append(f"{len(groups) - _MOST_PLACES} more places")
    ranks = f"{len(facts)} rank{'' if len(facts) == 1 else 's'}"
    seen = "; ".join(said) or "no answer"
    came = ", late" if late else ""
    return Milestone(at, "stacks", f"round {number} of {ranks}{came}: {seen}")


def _place(fact: StackFact) -> str:
    if fact.error and not fact.signature:
        return "could not be read"
    said = fact.label or (f"in {fact.signature[-1]}" if fact.signature else "")
    return (said or fact.activity)[:_MOST_WORDS]


def _who(facts: Sequence[StackFact]) -> str:
    if len(facts) == 1 and facts[0].rank is not None:
        return f"rank {facts[0].rank.rank}"
    return str(len(facts))


def of_recorders(at: float, facts: RecorderFacts | None) -> Milestone:
    """The step "flight recorders were read"."""
    if facts is None:
        return Milestone(at, "flight recorders", "none could be had")
    return Milestone(
        at, "flight recorders", f"of {len(facts.ranks)} ranks: {_blamed(facts.kind, facts)}"
    )


def of_ras(at: float, facts: RasFacts) -> Milestone:
    """The step "NCCL's RAS service was queried"."""
    return Milestone(at, "NCCL RAS", _blamed(facts.kind, facts))


def _blamed(kind: str, facts: RecorderFacts | RasFacts) -> str:
    named = [f"rank {culprit.rank}" for culprit in facts.culprits[:_MOST_PLACES]]
    more = len(facts.culprits) - len(named)
    named += [f"{more} more"] if more > 0 else []
    return f"{kind}, {' and '.join(named)}" if named else kind


def of_progress(views: Iterable[RankView]) -> list[Milestone]:
    """When each of the ranks last made progress, and when it ended."""
    found = []
    for view in list(views)[:MOST_RANKS]:
        progress = view.progress
        step = f", step {progress.step}" if progress and progress.step is not None else ""
        who = f"rank {view.rank.id.rank}"
        found.append(Milestone(view.advanced_at, "last progress", f"{who}{step}"))
        if view.ended_at is not None:
            found.append(Milestone(view.ended_at, "ended", who))
    return found

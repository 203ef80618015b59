"""The decision on a case, and the parts that every verdict has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import Literal

import msgspec

from ray_sentinel.engine.incidents.case import Case
from ray_sentinel.model.fault_kinds import KINDS
from ray_sentinel.model.identity import ProcessId, Rank, RankId
from ray_sentinel.model.incident import EvidenceItem, FaultKind, Verdict
from ray_sentinel.model.rank_names import name_ranks, ranges
from ray_sentinel.model.recorder import describe_waits
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.waitgraph.confidence import Testimony, put_on_rank

NAMED = 2.5
"""The score from which a rank is named; see ``waitgraph.confidence``, which has the weights."""
MOST_OTHERS = 8
"""Most lines about innocent ranks that a verdict keeps: there may be thousands, and they are alike.
"""


class EvidenceScores:
    """The evidence for and against each process, with its weight."""

    def __init__(self) -> None:
        self._lines: dict[ProcessId | None, list[EvidenceItem]] = {}

    def add(
        self, rank: Rank, source: str, said: str, weight: float, proof: tuple[str, ...] = ()
    ) -> None:
        """Add what is said of one rank, a predicate."""
        number = rank.id.rank
        text = f"rank {number} {said}"
        item = EvidenceItem(source=source, text=text, rank=number, weight=weight, proof=proof)
        self.put(rank.process, item)

    def note(self, source: str, text: str) -> None:
        """Add context, which concerns no process in particular."""
        self.put(None, EvidenceItem(source=source, text=text))

    def put(self, process: ProcessId | None, item: EvidenceItem) -> None:
        """Add a line; ``process`` is None for context."""
        self._lines.setdefault(process, []).append(item)

    def score(self, process: ProcessId) -> float:
        """The sum of the weights for a process."""
        return sum((item.weight for item in self._lines.get(process, ())), 0.0)

    def testimony(self, process: ProcessId) -> Testimony:
        """What each witness puts on a process."""
        return put_on_rank(self._lines.get(process, ()))

    def named(self) -> list[ProcessId]:
        """The processes with enough evidence against them, the worst first."""
        accused = [p for p in self._lines if p is not None and self.score(p) >= NAMED]
        return sorted(accused, key=lambda process: (-self.score(process), process))

    def by_score(self) -> list[tuple[ProcessId, float, tuple[EvidenceItem, ...]]]:
        """Every process with evidence, its score and its lines, the worst first."""
        known = [(p, self.score(p), tuple(items)) for p, items in self._lines.items() if p]
        return sorted(known, key=lambda one: (-one[1], one[0]))

    def context(self) -> tuple[EvidenceItem, ...]:
        """The lines that concern no process in particular."""
        return tuple(self._lines.get(None, ()))

    def lines(self, first: Iterable[ProcessId]) -> tuple[EvidenceItem, ...]:
        """The lines about ``first``, then the context, then some lines about the others."""
        order: list[ProcessId | None] = [*first, None]
        told = [item for process in order for item in self._lines.get(process, ())]
        rest = sorted(p for p in self._lines if p is not None and p not in order)
        others = [item for process in rest for item in self._lines[process]]
        return (*told, *others[:MOST_OTHERS])


MOST_STACKS = 12
"""Most stacks shown with one verdict."""
MOST_RANKS_TEXT = 400
"""Most characters of the list of ranks at one place."""

Decision = Literal["confirm", "wait", "dismiss"]


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What to do with a case, and the verdict that would be given now."""

    decision: Decision
    verdict: Verdict
    why: str = ""
    scores: EvidenceScores | None = None
    """What was weighed; None if one finding alone had the whole answer."""


def waiting_lines(case: Case, named: set[ProcessId]) -> tuple[str, ...]:
    """One line for each place in which innocent ranks wait."""
    places: dict[str, list[int]] = {}
    waits = case.recorder.waits if case.recorder is not None else ()
    for ranks, where in describe_waits(waits):
        places.setdefault(where, []).extend(ranks)
    for view, fact in () if waits else case.seen:
        if view.rank.process not in named:
            where = fact.label or (fact.signature[-1] if fact.signature else "unknown place")
            places.setdefault(where, []).append(view.rank.id.rank)
    return tuple(
        f"{name_ranks(ranks)}: {where}"
        for where, ranks in sorted(places.items(), key=lambda pair: -len(pair[1]))
    )


def supporting_stacks(case: Case, named: Sequence[ProcessId]) -> tuple[StackFact, ...]:
    """The stacks that support the verdict: those of the named ranks, then one for each place where
    others are, with their ranks."""
    own: list[StackFact] = []
    places: dict[tuple[str, ...], list[RankId]] = {}
    firsts: dict[tuple[str, ...], StackFact] = {}
    order = [*named, *(view.rank.process for view in case.job.live)]
    for process in dict.fromkeys(order):
        fact, view = case.latest(process), case.job.ranks.get(process)
        if fact is None or view is None:
            continue
        if process in named:
            own.append(msgspec.structs.replace(fact, rank=view.rank.id))
        else:
            firsts.setdefault(fact.signature, fact)
            places.setdefault(fact.signature, []).append(view.rank.id)
    others = (_shown_for(firsts[place], ranks) for place, ranks in places.items())
    return tuple(map(case.with_looks, islice(chain(own, others), MOST_STACKS)))


def _shown_for(fact: StackFact, ranks: Sequence[RankId]) -> StackFact:
    """The stack of the first of these ranks, shown for all of them, because they stand at one
    place."""
    if len(ranks) == 1:
        return msgspec.structs.replace(fact, rank=ranks[0])
    said = ranges(sorted({rank.rank for rank in ranks}))
    if len(said) > MOST_RANKS_TEXT:
        said = f"{said[:MOST_RANKS_TEXT].rpartition(',')[0]}, ..."
    return msgspec.structs.replace(fact, rank=ranks[0], alike=len(ranks), alike_ranks=said)


def unnamed(case: Case, scores: EvidenceScores, kind: FaultKind, summary: str) -> Verdict:
    """A verdict that accuses nobody."""
    return Verdict(
        kind=kind,
        summary=summary,
        confidence=0.5 if kind == "stall" else 0.0,
        evidence=scores.lines(()),
        waiting=waiting_lines(case, set()),
        next_steps=KINDS[kind].next_steps,
        stacks=supporting_stacks(case, ()),
    )

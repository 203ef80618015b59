"""What is decided about a case, and the parts of a verdict that every case has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from ray_sentinel.engine.case import Case
from ray_sentinel.engine.evidence_scores import EvidenceScores
from ray_sentinel.engine.wording import NEXT_STEPS
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.incident import FaultKind, Verdict
from ray_sentinel.model.rank_names import name_ranks
from ray_sentinel.model.stacks import StackFact

MOST_STACKS = 12
"""Shown with one verdict."""

Decision = Literal["confirm", "wait", "dismiss"]


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What to do with a case, and the verdict that would be given now."""

    decision: Decision
    verdict: Verdict
    why: str = ""


def waiting_lines(case: Case, named: set[ProcessId]) -> tuple[str, ...]:
    """One line for each place in which innocent ranks are."""
    places: dict[str, list[int]] = {}
    waits = case.recorder.waits if case.recorder is not None else ()
    for wait in waits:
        whom = ", ".join(map(str, wait.waits_for)) or "their peers"
        places.setdefault(f"for {whom} in {wait.operation}", []).append(wait.rank)
    for view in case.job.live:
        fact = case.latest(view.rank.process)
        if not waits and view.rank.process not in named and fact is not None:
            where = fact.label or (fact.signature[-1] if fact.signature else "unknown place")
            places.setdefault(where, []).append(view.rank.id.rank)
    return tuple(
        f"{name_ranks(ranks)}: {where}"
        for where, ranks in sorted(places.items(), key=lambda pair: -len(pair[1]))
    )


def telling_stacks(case: Case, named: Sequence[ProcessId]) -> tuple[StackFact, ...]:
    """The stacks that show it: those of the named, then one of each place where others are."""
    shown: list[StackFact] = []
    places: set[tuple[str, ...]] = set()
    order = [*named, *(view.rank.process for view in case.job.live)]
    for process in dict.fromkeys(order):
        fact = case.latest(process)
        view = case.job.ranks.get(process)
        if fact is None or view is None or (process not in named and fact.signature in places):
            continue
        places.add(fact.signature)
        shown.append(msgspec.structs.replace(fact, rank=view.rank.id))
        if len(shown) >= MOST_STACKS:
            break
    return tuple(shown)


def unnamed(case: Case, ledger: EvidenceScores, kind: FaultKind, summary: str) -> Verdict:
    """A verdict that accuses nobody."""
    return Verdict(
        kind=kind,
        summary=summary,
        confidence=0.5 if kind == "stall" else 0.0,
        evidence=ledger.lines(()),
        waiting=waiting_lines(case, set()),
        next_steps=NEXT_STEPS[kind],
        stacks=telling_stacks(case, ()),
    )

"""The explanation of a set of stacks: who, what kind of fault, how sure, and why.

``explain`` is a pure function of one or more rounds of facts. A round is one look at the job's
processes; the facts of one process in one round are merged by ``classify_process`` before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ray_sentinel.evidence.stacks.compare import Movement, movements
from ray_sentinel.evidence.stacks.context import (
    RuleAnswer,
    StacksContext,
    build_context,
    fault_kind,
)
from ray_sentinel.evidence.stacks.tree import StackClass, classes, place_of, who
from ray_sentinel.evidence.stacks.verdict import judge
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.incident import Culprit, EvidenceItem, FaultKind
from ray_sentinel.model.stacks import StackFact

SOURCE = "stacks"


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """What the stacks show. No culprits with kind "unknown" or "stall" is a valid answer."""

    kind: FaultKind
    confidence: float
    """The confidence, from 0 to 1."""
    culprits: tuple[Culprit, ...] = ()
    processes: tuple[ProcessId, ...] = ()
    """The culprits' processes, in the order of ``culprits``."""
    evidence: tuple[EvidenceItem, ...] = ()
    waiting: tuple[str, ...] = ()
    """For each class of innocent processes, what it waits for."""
    classes: tuple[StackClass, ...] = ()
    """The classes of the ranks' own processes at the last look; those that do not wait come
    first."""
    helpers: tuple[StackFact, ...] = ()
    """Processes that were left out because they are not ranks."""
    movements: Mapping[ProcessId, Movement] = {}


def explain(rounds: Sequence[Sequence[StackFact]]) -> Explanation:
    """Explain the looks at one job's processes, oldest first; each holds one fact for each process.

    The last look at each process counts; earlier ones show what moved. A process that is missing in
    the last round is judged by its last look. Facts of several jobs must be explained separately.
    """
    last: dict[ProcessId, StackFact] = {}
    for facts in rounds:
        for fact in facts:
            last[fact.process] = _newer(last.get(fact.process), fact)
    helpers = tuple(fact for fact in last.values() if _is_helper(fact))
    ranks = [fact for fact in last.values() if not _is_helper(fact)]
    moved = movements(rounds)
    view = build_context(ranks, moved)
    judgement = judge(view)
    found = classes(ranks)
    return Explanation(
        kind=judgement.kind,
        confidence=judgement.confidence,
        culprits=tuple(_culprit(view, fact) for fact in judgement.culprits),
        processes=tuple(fact.process for fact in judgement.culprits),
        evidence=_evidence(view, judgement, helpers),
        waiting=tuple(
            f"{who(item.members)}: {item.label}" for item in found if item.waits_for_others
        ),
        classes=found,
        helpers=helpers,
        movements=moved,
    )


def _newer(old: StackFact | None, new: StackFact) -> StackFact:
    """The new look, with what only the old one knew."""
    if old is None:
        return new
    return msgspec.structs.replace(
        new,
        rank=new.rank or old.rank,
        helper=new.helper or old.helper,
        command=new.command or old.command,
        kernels=new.kernels if new.kernels_listed is not None else old.kernels,
        kernels_listed=(
            new.kernels_listed if new.kernels_listed is not None else old.kernels_listed
        ),
    )


def _is_helper(fact: StackFact) -> bool:
    if fact.rank is not None and fact.helper == "launcher or helper":
        return False  # judged by its command line alone: the known rank decides
    # An idle worker of Ray's that nobody knows as a rank has no part in the job.
    return bool(fact.helper) or (fact.activity == "idle" and fact.rank is None)


def _culprit(view: StacksContext, fact: StackFact) -> Culprit:
    movement = view.movements.get(fact.process, "unknown")
    reason = fact.label or fact.error or "in code that no table knows"
    spot = place_of(fact)
    where = f" at {spot}" if spot and spot not in reason else ""
    tail = {"stuck": ", not moving", "moved": ", moving", "in-place": ", in a loop"}
    return Culprit(
        rank=fact.rank.rank if fact.rank else None,
        host=fact.process.host,
        pid=fact.process.pid or None,
        reason=f"{reason}{where}{tail.get(movement, '')}",
    )


def _evidence(
    view: StacksContext, judgement: RuleAnswer, helpers: Sequence[StackFact]
) -> tuple[EvidenceItem, ...]:
    items = [EvidenceItem(source=SOURCE, text=text) for text in judgement.reasons]
    for index, fact in enumerate(judgement.culprits):
        kind = (
            judgement.kinds[index]
            if judgement.kinds
            else fault_kind(fact, view.movements.get(fact.process, "unknown"))
        )
        place = " < ".join(reversed(fact.signature[-4:]))
        items.append(
            EvidenceItem(
                source=SOURCE,
                text=f"{who([fact])} ({kind if judgement.kinds else judgement.kind}): "
                f"{place or fact.error}"[:600],
                rank=fact.rank.rank if fact.rank else None,
                weight=judgement.confidence,
                at=fact.at or None,
            )
        )
    items.extend(
        EvidenceItem(source=SOURCE, text=f"{who([fact])}: {fact.error or 'no stack'}")
        for fact in view.unread
    )
    if helpers:
        kinds = sorted({fact.helper or "idle" for fact in helpers})
        text = f"left out as no ranks: {len(helpers)} processes ({', '.join(kinds)})"
        items.append(EvidenceItem(source=SOURCE, text=text))
    return tuple(items)

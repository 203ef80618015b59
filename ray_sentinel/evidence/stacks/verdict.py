"""Who holds the others up, judged by where the processes of one job are.

Every rule returns a ``RuleAnswer`` or None; ``judge`` tries them in the order of their strength. No
rule names more than half of the processes, and none names a process that is known to wait for
others, unless it waits in another collective than everybody else.
"""

from __future__ import annotations

from collections.abc import Callable

from ray_sentinel.evidence.stacks import (
    cohorts,
    divergence_rules,
    left_loop,
    off_collective,
    proofs,
)
from ray_sentinel.evidence.stacks.context import RuleAnswer, StacksContext
from ray_sentinel.evidence.stacks.readers.problems import process_gone
from ray_sentinel.model.stacks import StackFact


def judge(view: StacksContext) -> RuleAnswer:
    """The answer of the first rule that has one; "unknown" is a valid answer."""
    for rule in _RULES:
        if answer := rule(view):
            return answer
    return RuleAnswer(
        kind="unknown",
        confidence=0.1,
        reasons=("the stacks do not set anybody apart: who holds the others up cannot be told",),
    )


def _nothing(view: StacksContext) -> RuleAnswer | None:
    if any(map(_is_informative, view.facts)):
        return None
    reason = "no stack could be read" if view.facts else "there are no stacks of ranks"
    return RuleAnswer(kind="unknown", confidence=0.0, reasons=(reason,))


def _is_informative(fact: StackFact) -> bool:
    return bool(fact.signature or fact.kernels or fact.state or process_gone(fact.error))


_RULES: tuple[Callable[[StacksContext], RuleAnswer | None], ...] = (
    _nothing,
    proofs.stopped,
    proofs.gil,
    proofs.blocked,
    proofs.gone,
    off_collective.alone,
    divergence_rules.not_waiting,
    divergence_rules.beside_doubtful,
    divergence_rules.device,
    cohorts.left_the_crowd,
    divergence_rules.doubtful,
    left_loop.left_the_loop,
    cohorts.aborting,
    cohorts.other_collective,
    cohorts.all_wait,
    off_collective.same_outside,
    off_collective.outlier,
)

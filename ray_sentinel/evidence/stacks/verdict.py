"""Who holds the others up, judged from where the processes of one job stand.

Every rule answers with a ``Judgement`` or with None; ``judge`` asks them in the order of their
strength. No rule names more than half of the processes, and none names a process that is known to
wait for others, but where its collective is another one than everybody else's.
"""

from __future__ import annotations

from collections.abc import Callable

from ray_sentinel.evidence.stacks import apart, crowds, left_loop, outside, proofs
from ray_sentinel.evidence.stacks.problems import process_gone
from ray_sentinel.evidence.stacks.scene import Judgement, Scene
from ray_sentinel.model.stacks import StackFact


def judge(view: Scene) -> Judgement:
    """The first rule that has an answer; "unknown" is one."""
    for rule in _RULES:
        if answer := rule(view):
            return answer
    return Judgement(
        kind="unknown",
        confidence=0.1,
        reasons=("the stacks do not set anybody apart: who holds the others up cannot be told",),
    )


def _nothing(view: Scene) -> Judgement | None:
    if any(map(_says, view.facts)):
        return None
    reason = "no stack could be read" if view.facts else "there are no stacks of ranks"
    return Judgement(kind="unknown", confidence=0.0, reasons=(reason,))


def _says(fact: StackFact) -> bool:
    return bool(fact.signature or fact.kernels or fact.state or process_gone(fact.error))


_RULES: tuple[Callable[[Scene], Judgement | None], ...] = (
    _nothing,
    proofs.stopped,
    proofs.gil,
    proofs.blocked,
    proofs.gone,
    outside.alone,
    apart.not_waiting,
    apart.beside_doubtful,
    apart.device,
    crowds.left_the_crowd,
    apart.doubtful,
    left_loop.left_the_loop,
    crowds.aborting,
    crowds.other_collective,
    crowds.all_wait,
    outside.same_outside,
    outside.outlier,
)

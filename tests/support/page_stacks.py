"""Stacks of the stopped rank's incident, as the engine puts them into a verdict."""

from __future__ import annotations

import msgspec

from ray_sentinel.model.identity import ProcessId, RankId
from ray_sentinel.model.incident import Incident, Milestone, RankLog, Transition, Verdict
from ray_sentinel.model.stacks import EarlierLook, StackFact
from tests.support.page_data import NOW

OUTER = ("<module> (train.py:88)", "main (train.py:71)", "fit (trainer.py:240)")


def facts(hostile: str = "", deep: int = 0) -> tuple[StackFact, ...]:
    """Rank 3 reads its data, ranks 0-2 and 4-6 wait in all_reduce, rank 7 in a barrier."""
    outer = OUTER + tuple(f"recurse (tree.py:{number})" for number in range(deep))
    step = (*outer, "training_step (trainer.py:310)")

    def fact(rank: int, signature: tuple[str, ...], label: str, **more: object) -> StackFact:
        return msgspec.structs.replace(
            StackFact(
                process=ProcessId(f"node-{rank % 2}", 4000 + rank),
                rank=RankId("llama", 1, rank),
                signature=signature,
                label=label,
            ),
            **more,
        )

    reads = (*outer, "next_batch (loader.py:52)", f"read{hostile} (dataset.py:19)")
    sums = (*step, "backward (model.py:12)", "all_reduce (distributed_c10d.py:2300)")
    meets = (*step, "barrier (distributed_c10d.py:4100)")
    return (
        fact(
            3,
            reads,
            f"reading a file{hostile}",
            looks=2,
            earlier=(
                EarlierLook(rounds_before=1, seconds_before=2.0, shared=len(reads)),
                EarlierLook(rounds_before=2, seconds_before=4.0, shared=len(reads)),
            ),
        ),
        fact(
            0,
            sums,
            "in all_reduce",
            alike=6,
            alike_ranks="0-2, 4-6",
            waits_for_others=True,
            looks=2,
            before=(*step, f"forward{hostile} (model.py:9)"),
            earlier=(
                EarlierLook(
                    rounds_before=1,
                    seconds_before=2.0,
                    shared=len(step),
                    rest=(f"forward{hostile} (model.py:9)",),
                ),
                EarlierLook(
                    rounds_before=2,
                    seconds_before=4.0,
                    shared=len(step),
                    rest=(f"load{hostile} (model.py:3)",),
                ),
            ),
        ),
        fact(7, meets, "in barrier", waits_for_others=True),
    )


def with_stacks(incident: Incident, hostile: str = "", deep: int = 0) -> Incident:
    """The incident with stacks, output, steps and advice."""
    verdict = incident.verdict or Verdict(kind="unknown", summary="")
    verdict = msgspec.structs.replace(
        verdict,
        stacks=facts(hostile, deep),
        waiting=("ranks 0-2, 4-6: in all_reduce", "rank 7: in barrier"),
        next_steps=("kill -CONT 4003 lets it go on; find out who stopped it",),
    )
    log = RankLog(rank=3, host="node-1", pid=4003, file="logs/rank-3.txt",
                  lines=("step 1203 loss 2.31", f"step 1204 loss 2.30{hostile}"))  # fmt: skip
    return msgspec.structs.replace(
        incident,
        verdict=verdict,
        logs=(log,),
        milestones=(Milestone(NOW - 11.0, "stacks", "of 8 of 8 ranks"),),
        history=(
            Transition(NOW - 12.0, "suspected", "no step for 5 s"),
            Transition(NOW - 10.5, "confirmed", "proven"),
            Transition(NOW - 6.0, "captured", f"7 files{hostile}"),
        ),
    )

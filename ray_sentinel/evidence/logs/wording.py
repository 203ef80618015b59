"""What an answer says in words: one sentence, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence

from ray_sentinel.evidence.logs.records import Hit
from ray_sentinel.evidence.logs.signatures import Advice
from ray_sentinel.masking import mask
from ray_sentinel.model.triage import StepProgress


def next_steps(
    cause: Hit | None, advice: Sequence[Advice], steps: StepProgress, kind: str
) -> tuple[str, ...]:
    found: dict[str, None] = {}
    if cause is not None and kind != "soft-success":
        found.update(dict.fromkeys(cause.signature.remedy))
    for item in advice:
        found.update(dict.fromkeys(item.remedy))
    if steps.lost_steps is not None and kind not in ("completed", "running", "soft-success"):
        found[
            f"Start again from the checkpoint of step {steps.checkpoint_step}: "
            f"{steps.lost_steps} steps have to be done again."
        ] = None
    return tuple(found)


def summary(
    kind: str,
    cause: Hit | None,
    rank: int | None,
    steps: StepProgress,
    quiet: bool,
    phase: str = "",
) -> str:
    where = _where(steps)
    if kind == "completed":
        return f"Training came to its end ({where})."
    if kind == "running":
        return f"Training goes on ({where})."
    if kind == "soft-success":
        return f"Training came to its end ({where}); only the teardown went wrong."
    if kind == "unknown-death" and cause is None:
        return f"The logs stop {where} and do not say why."
    if kind == "hang" and (quiet or cause is None):
        phase_of = f", in the phase {phase}" if phase and steps.last_step is None else ""
        return f"Nothing moved any more {where}{phase_of}."
    who = f" on rank {rank}" if rank is not None else ""
    text = mask(cause.text.strip()) if cause else ""
    return f"{kind}{who} {where}: {text[:200]}"


def _where(steps: StepProgress) -> str:
    if steps.last_step is None:
        return "before any step was seen"
    total = f" of {steps.total_steps}" if steps.total_steps else ""
    return f"after step {steps.last_step}{total}"

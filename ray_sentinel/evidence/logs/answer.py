"""Builds the answer: class, cause, culprits, evidence, progress and next steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from ray_sentinel.evidence.logs.case import LogAnalysis
from ray_sentinel.evidence.logs.causes import in_order
from ray_sentinel.evidence.logs.culprits import name_culprits
from ray_sentinel.evidence.logs.errors.signatures import Advice
from ray_sentinel.evidence.logs.lines.chunk import MAX_LINE
from ray_sentinel.evidence.logs.records import FileFacts, Hit
from ray_sentinel.evidence.logs.shown import echoes, evidence
from ray_sentinel.evidence.logs.training.timeline import phase_began, progress
from ray_sentinel.masking import mask
from ray_sentinel.model.triage import (
    FailureClass,
    LogCulprit,
    LogException,
    Outcome,
    StepProgress,
    Triage,
)

# The words of an answer: one sentence, and what to do next.


def next_steps(
    cause: Hit | None, advice: Sequence[Advice], steps: StepProgress, kind: str
) -> tuple[str, ...]:
    """What to do next, each step once: the remedies of the cause's signature and of ``advice``,
    then how many steps must be done again."""
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


def summary(kind: str, cause: Hit | None, rank: int | None, steps: StepProgress, phase: str) -> str:
    """The answer in one sentence."""
    where = _where(steps)
    if kind == "completed":
        return f"Training finished ({where})."
    if kind == "running":
        return f"Training is running ({where})."
    if kind == "soft-success":
        return f"Training finished ({where}); only the teardown failed."
    if kind == "unknown-death" and cause is None:
        return f"The logs end {where} without giving a reason."
    if kind == "hang" and cause is None:
        phase_of = f", in the phase {phase}" if phase and steps.last_step is None else ""
        return f"There was no progress any more {where}{phase_of}."
    who = f" on rank {rank}" if rank is not None else ""
    text = mask(cause.text.strip()) if cause else ""
    return f"{kind}{who} {where}: {text[:200]}"


def _where(steps: StepProgress) -> str:
    if steps.last_step is None:
        return "before any step was seen"
    total = f" of {steps.total_steps}" if steps.total_steps else ""
    return f"after step {steps.last_step}{total}"


def answer(
    case: LogAnalysis,
    kind: str,
    outcome: Outcome,
    cause: Hit | None,
    *,
    confidence: float,
    underlying: str = "",
    after: Sequence[Hit] = (),
) -> Triage:
    """The answer that the job failed, or ended, as ``kind`` because of ``cause``.

    ``after``: the errors after the end of training; ``underlying``: how a job that stood still was
    ended.
    """
    phase = case.phase.phase if case.phase else ""
    steps = _progress(case)
    everything = in_order([*case.fatal, *after])
    culprits = _culprits(case, kind, cause, everything)
    rank = culprits[0].rank if culprits else None
    advice = case.catalogue.advice_for(kind, phase)
    told = Triage(
        kind=_checked(kind),
        outcome=outcome,
        summary=summary(kind, _spoken_by(rank, cause, everything), rank, steps, phase),
        confidence=confidence,
        signature=cause.signature.id if cause else "",
        cause=(cause.signature.cause if cause else "") or (advice[0].cause if advice else ""),
        culprits=culprits,
        evidence=evidence(case, cause, everything, [c.rank for c in culprits]),
        next_steps=next_steps(cause, advice, steps, kind),
        playbook=next((a.playbook for a in advice if a.playbook), ""),
        first_error_at=cause.time if cause else None,
        first_error_rank=rank if culprits else cause.origin.rank if cause else None,
        underlying=underlying,
        exception=_masked_exception(cause),
        phase=phase,
        progress=steps,
        echoes=echoes(case, cause, everything),
    )
    return _with_job(case, told)


def _spoken_by(rank: int | None, cause: Hit | None, hits: Sequence[Hit]) -> Hit | None:
    """``cause``, or the line of its class that the named ``rank`` wrote where another wrote it."""
    if cause is None or rank is None or cause.origin.rank in (None, rank):
        return cause
    own = (h for h in hits if h.signature.kind == cause.signature.kind and h.origin.rank == rank)
    return next(own, cause)


def _culprits(
    case: LogAnalysis, kind: str, cause: Hit | None, everything: Sequence[Hit]
) -> tuple[LogCulprit, ...]:
    """The culprits; none if the job did what it should."""
    if cause is None or kind in ("soft-success", "completed", "running"):
        return ()
    return name_culprits(case, cause, kind, everything)


def _with_job(case: LogAnalysis, told: Triage) -> Triage:
    """``told`` with what does not depend on the verdict: times, header, how files were read."""
    files, end = case.files, case.end
    begins = [f.first_time for f in files if f.first_time is not None]
    since = phase_began(files, case.training, case.phase) if case.phase else None
    return msgspec.structs.replace(
        told,
        phase_seconds=round(end - since, 1) if end and since and end >= since else None,
        facts={key: mask(value) for f in reversed(files) for key, value in f.facts.items()},
        started_at=min(begins, default=None),
        ended_at=end,
        files=len(files),
        bytes=sum(f.file.size for f in files),
        sampled=tuple(_read_in_part(files)),
        problems=tuple(f"{f.file.label}: {f.problem}" for f in files if f.problem),
    )


def _read_in_part(files: Sequence[FileFacts]) -> Iterator[str]:
    for facts in files:
        if facts.sampled:
            yield f"{facts.file.label}: {facts.sampled}"
        if facts.long_lines:
            lines = "1 line is" if facts.long_lines == 1 else f"{facts.long_lines} lines are"
            yield (
                f"{facts.file.label}: {lines} longer than {MAX_LINE} characters: only a part of "
                "each was looked at, around the word that called it up"
            )


def _checked(kind: str) -> FailureClass:
    return msgspec.convert(kind, FailureClass)  # type: ignore[no-any-return]


def _masked_exception(cause: Hit | None) -> LogException | None:
    if cause is None or cause.exception is None:
        return None
    raised = cause.exception
    return msgspec.structs.replace(raised, message=mask(raised.message))


def _progress(case: LogAnalysis) -> StepProgress:
    totals = [int(f.facts["total_steps"]) for f in case.files if "total_steps" in f.facts]
    saved, at = case.question.saved_step, case.question.saved_at
    for facts in case.files:
        for hit in facts.hits:
            if hit.signature.id == "checkpoint-saved" and hit.groups.get("step", "").isdigit():
                step = int(hit.groups["step"])
                if saved is None or step > saved:
                    saved, at = step, hit.time
    return progress(case.training, saved, at, case.end, max(totals, default=None))

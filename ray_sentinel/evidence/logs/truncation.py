"""A log that ends in the middle of healthy training: what is known, and no more."""

from __future__ import annotations

import msgspec

from ray_sentinel.evidence.logs.case import LogAnalysis
from ray_sentinel.evidence.logs.timeline import SURVIVED_STEPS
from ray_sentinel.model.triage import Triage

_NEAR_BYTES = 4096
"""Undated steps went on to the end where no more than this follows them."""
_DAY = 86_400.0
_CAUSE = (
    "Nothing that was read speaks of a failure: the log may have been copied or cut while the job "
    "ran, or the job was ended without a word."
)
_REMEDY = (
    "See what became of the job: the scheduler (sacct, ray job status, kubectl get pod), and "
    "whether there is a newer log."
)


def went_on(case: LogAnalysis) -> bool:
    """Steps were made up to the end of the logs, and no error in them was fatal.

    Only for a case in which no long silence was found.
    """
    training, phase = case.training, case.phase
    if case.fatal or training.file is None or phase is None or phase.phase != "train":
        return False
    if len({seen.step.step for seen in training.steps}) < SURVIVED_STEPS:
        return False
    if training.latest is not None:
        return True
    return case.files[training.file].last_offset - training.steps[-1].offset <= _NEAR_BYTES


def as_cut(told: Triage, case: LogAnalysis) -> Triage:
    """``told`` with words that claim no death."""
    step = told.progress.last_step
    where = f" (step {step})" if step is not None else ""
    errors = "and survived the errors in them" if case.survived else "without an error"
    summary = (
        f"Training went on to the end of the logs{where} {errors}; they do not say what came then."
    )
    age = case.question.now - case.end if case.question.now and case.end else 0.0
    if age >= _DAY:
        days = int(age // _DAY)
        summary += f" The newest line is {days} day{'s' if days > 1 else ''} old."
    return msgspec.structs.replace(
        told,
        summary=summary,
        cause=_CAUSE,
        next_steps=(_REMEDY, *told.next_steps),
        playbook="",
    )

"""Combines the facts of all files of a job into its outcome and the class of its failure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from ray_sentinel.evidence.logs.answer import answer
from ray_sentinel.evidence.logs.case import LineNumber, LogAnalysis, Question
from ray_sentinel.evidence.logs.causes import class_of, first_cause, is_trouble
from ray_sentinel.evidence.logs.clocks import clock_shifts, shifted
from ray_sentinel.evidence.logs.culprits import behind_timeout
from ray_sentinel.evidence.logs.errors.catalogue import Catalogue
from ray_sentinel.evidence.logs.errors.engines import served_to_end, shut_down
from ray_sentinel.evidence.logs.errors.launchers import ended_by_srun, without_tasks
from ray_sentinel.evidence.logs.explained_ends import with_explained_ends
from ray_sentinel.evidence.logs.outcome import find_ending, went_silent
from ray_sentinel.evidence.logs.process_index import ProcessIndex
from ray_sentinel.evidence.logs.records import FileFacts, Hit, StepSeen
from ray_sentinel.evidence.logs.recovered_errors import split_survived, tolerated
from ray_sentinel.evidence.logs.training.startup import StuckStart, stuck_start
from ray_sentinel.evidence.logs.training.timeline import (
    SURVIVED_STEPS,
    find_training,
    last_phase,
    slowdown,
)
from ray_sentinel.model.triage import Outcome, Triage

# Answers for logs that end in the middle of healthy training: only what is known.

_NEAR_BYTES = 4096
"""Most bytes between the last step without a time and the end of its file for training to count as
going on to the end."""
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
    """The answer if steps were made up to the end of the logs, and no error in them was fatal.

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
    """The answer, reworded so that it claims no death."""
    step = told.progress.last_step
    where = f" (step {step})" if step is not None else ""
    errors = "and survived the errors in them" if case.survived else "without an error"
    summary = (
        f"Training continued to the end of the logs{where} {errors}; "
        "what happened then is not in them."
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


_NORM_STAYS = 3
"""Least number of steps at the end whose gradient norm is not a number, for this to count as a
failure while the loss still is one."""


def analyse(
    files: Sequence[FileFacts],
    catalogue: Catalogue,
    question: Question,
    line_number: LineNumber,
) -> Triage:
    """The answer for the files of one job; unknown-death if there are no files."""
    shifts = clock_shifts(files)
    moved = [shifted(facts, by) for facts, by in zip(files, shifts, strict=True)]
    moved = without_tasks(moved)
    training = find_training(moved)
    ending = find_ending(moved, training, question.now, live=question.live)
    real = [h for f in moved for h in f.hits if h.signature.role not in ("harmless", "note")]
    real = [h for h in real if moved[h.file].counts.get(h.signature.id, 1) >= h.signature.least]
    real = ended_by_srun(real, catalogue.get("srun-task-ended"))
    before, after = ending.split(real)
    fatal, survived = split_survived(before, moved, training, ending.completed)
    processes = ProcessIndex(moved)
    fatal = with_explained_ends(fatal, moved, processes)
    harmless = tolerated(after, survived)
    after = [hit for hit in after if hit not in harmless]
    case = LogAnalysis(
        files=moved,
        catalogue=catalogue,
        question=question,
        training=training,
        ending=ending,
        fatal=fatal,
        survived=survived,
        phase=last_phase(moved, training),
        processes=processes,
        number=line_number,
    )
    if ending.completed:
        return _finished(case, after)
    return _unfinished(case)


def _finished(case: LogAnalysis, after: list[Hit]) -> Triage:
    """Training finished: later errors are teardown, except for a last checkpoint that was lost."""
    lost = [h for h in (*case.fatal, *after) if h.signature.kind == "checkpoint-fs-error"]
    if lost and is_trouble(lost[0]):
        return answer(case, "checkpoint-fs-error", "failed", lost[0], confidence=0.7)
    noise = [h for h in after if is_trouble(h) or h.signature.role == "echo"]
    noise += [h for h in case.fatal if is_trouble(h)]
    nan = _nan_at_end(case)
    if nan is not None:
        return answer(case, "nan-loss", "completed", nan, confidence=0.8)
    worst = first_cause([h for h in noise if _is_bad_end(h)], True)
    if worst is not None:
        return answer(case, "soft-success", "completed", worst, confidence=0.8, after=after)
    slow = slowdown(case.training.steps)
    if slow is not None:
        return _slow(case, slow, "completed")
    return answer(case, "completed", "completed", None, confidence=0.9)


def _is_bad_end(hit: Hit) -> bool:
    """Trouble, a process that did not end by itself, or one that raised because its peer went."""
    echo = hit.signature.role == "echo"
    died = echo and hit.signature.kind == "signal-kill"
    left = echo and hit.signature.kind == "transport-lost" and hit.exception is not None
    return is_trouble(hit) or hit.exit is not None or died or left


def _unfinished(case: LogAnalysis) -> Triage:
    nan = _nan_at_end(case)
    told = _ended(case, nan)
    return told if nan is None else _with_nan(told, case, nan)


def _with_nan(told: Triage, case: LogAnalysis, nan: Hit) -> Triage:
    """``told``, extended by an earlier loss of numbers (NaN): if somebody cancelled the job, it was
    already ruined by that; any other end has its own cause, and the lost numbers are a second
    one."""
    if told.kind == "nan-loss":
        return told
    if told.kind == "cancelled":
        ruined = answer(case, "nan-loss", "stopped", nan, confidence=0.8, underlying=told.kind)
        words = f"{ruined.summary}; then the job was cancelled."
        return msgspec.structs.replace(ruined, summary=words)
    remedy = (step for step in nan.signature.remedy if step not in told.next_steps)
    return msgspec.structs.replace(
        told,
        summary=f"{told.summary.rstrip('.')}. Before that, loss or norm became NaN: {nan.text}.",
        underlying=told.underlying or "nan-loss",
        evidence=(*told.evidence, case.show(nan, "no numbers from here on")),
        next_steps=(*told.next_steps, *remedy),
    )


def _ended(case: LogAnalysis, nan: Hit | None) -> Triage:
    started = case.started
    cause = first_cause(case.fatal, started)
    hung = went_silent(
        case.files, case.training, case.phase, case.question.now, live=case.question.live
    )
    if cause is not None:
        kind = class_of(cause, started)
        cause = behind_timeout(case, cause, kind) or cause
    if cause is not None and is_trouble(cause):
        return _by_trouble(case, cause, hung)
    if nan is not None:
        return answer(case, "nan-loss", "unknown", nan, confidence=0.8)
    stuck = stuck_start(case)
    if stuck is not None and (cause is None or _waits_for_model(cause, stuck)):
        return _never_started(case, stuck, None)
    if cause is not None:
        echo = class_of(cause, started)
        if echo == "cancelled" and stuck is not None:
            return _never_started(case, stuck, cause)
        if echo == "cancelled" and hung:
            return answer(case, "hang", "stopped", None, confidence=0.6, underlying=echo)
        return answer(case, echo, "failed", cause, confidence=0.5)
    if hung:
        return answer(case, "hang", "unknown", None, confidence=0.6)
    return _unexplained_end(case)


def _by_trouble(case: LogAnalysis, cause: Hit, hung: bool) -> Triage:
    """The answer for a job whose trouble is ``cause``; ``hung``: the job had already stopped moving
    when it came."""
    kind = class_of(cause, case.started)
    if kind not in ("cancelled", "preempted"):
        sure = 0.9 if cause.signature.role == "cause" else 0.7
        return answer(case, kind, "failed", cause, confidence=sure)
    if (stuck := stuck_start(case)) is not None:
        return _never_started(case, stuck, cause)
    if hung:
        return answer(case, "hang", "stopped", None, confidence=0.7, underlying=kind)
    return answer(case, kind, "stopped", cause, confidence=0.85)


def _unexplained_end(case: LogAnalysis) -> Triage:
    """The answer if no line reports a failure, and nothing stood still."""
    slow = slowdown(case.training.steps)
    if slow is not None:
        return _slow(case, slow, "running" if case.ending.moving else "unknown")
    if not case.training.steps and (stopped := shut_down(case.files)) is not None:
        told = answer(case, "completed", "completed", None, confidence=0.8)
        return _of_engine(told, case, stopped, "The serving engine was shut down cleanly.")
    serves = None if case.training.steps else served_to_end(case.files, case.end)
    if case.ending.moving:
        told = answer(case, "running", "running", None, confidence=0.7)
        return _of_engine(told, case, serves, "The serving engine is working.") if serves else told
    told = answer(case, "unknown-death", "unknown", None, confidence=0.4)
    if serves is not None:
        words = "The serving engine worked to the end of the log; what happened then is not in it."
        return _of_engine(told, case, serves, words)
    return as_cut(told, case) if went_on(case) else told


def _of_engine(told: Triage, case: LogAnalysis, said: Hit, words: str) -> Triage:
    """``told`` for a server, which makes no steps: ``said`` is the line that shows its
    condition."""
    unknown = told.kind == "unknown-death"
    return msgspec.structs.replace(
        told,
        summary=words,
        cause=_CAUSE if unknown else told.cause,
        evidence=(case.show(said, "the engine's last word"), *told.evidence),
        next_steps=(_REMEDY,) if unknown else told.next_steps,
        playbook="",
    )


def _nan_at_end(case: LogAnalysis) -> Hit | None:
    """The first step of the last run of steps without a number, as a hit.

    In mixed precision, a norm that is no number beside a finite loss occurs now and then, and the
    step is skipped: it counts only if it stays so.
    """
    bad = _last_run([(seen, seen.step.loss) for seen in case.training.steps])
    name, value = "loss", "nan"
    if bad:
        name, value = bad[0].step.of, str(bad[0].step.loss)
    else:
        bad = _last_run([(seen, seen.step.norm) for seen in case.training.steps])
        name, value = "gradient norm", str(bad[0].step.norm) if bad else ""
        bad = bad if len(bad) >= _NORM_STAYS else []
    if not bad or case.training.file is None:
        return None
    first, number = bad[0], bad[0].step.step
    return Hit(
        file=case.training.file,
        offset=first.offset,
        text=f"step {number}: {name} {value}" if number is not None else f"{name} nan",
        signature=case.catalogue.get("loss-nan-reported"),
        time=first.time,
    )


def _last_run(values: Sequence[tuple[StepSeen, float | None]]) -> list[StepSeen]:
    """The steps of the last unbroken run of values that are no numbers; steps without a value say
    nothing."""
    run: list[StepSeen] = []
    for seen, value in reversed(values):
        if value is None:
            continue
        if math.isfinite(value):
            break
        run.append(seen)
    return run[::-1]


def _waits_for_model(cause: Hit, stuck: StuckStart) -> bool:
    """An engine's word that it waits, before its model is loaded; later on it means a hang."""
    return cause.signature.engine and stuck.first.phase not in ("kv-cache", "graph-capture")


def _never_started(case: LogAnalysis, stuck: StuckStart, ended: Hit | None) -> Triage:
    """``ended``: how somebody ended it."""
    outcome: Outcome = "stopped" if ended else "running" if case.ending.moving else "unknown"
    underlying = class_of(ended, False) if ended else ""
    told = answer(case, "startup-stuck", outcome, None, confidence=0.7, underlying=underlying)
    first, phase = stuck.first, stuck.first.phase
    begun = case.line(stuck.file, first.offset, first.text, f"the phase {phase} begins", first.time)
    summary = (
        f"The start-up is stuck: phase {phase} has lasted {stuck.seconds / 60:.0f} min "
        f"(limit {stuck.limit / 60:.0f} min), and no step was seen."
    )
    return msgspec.structs.replace(
        told,
        summary=summary,
        phase=phase,
        phase_seconds=round(stuck.seconds, 1),
        evidence=(begun, *told.evidence),
    )


def _slow(case: LogAnalysis, slow: tuple[float, float], outcome: Outcome) -> Triage:
    before, after = slow
    told = answer(case, "throughput-degradation", outcome, None, confidence=0.7)
    summary = f"Steps became slower: from {before:.3g} s to {after:.3g} s at the end."
    return msgspec.structs.replace(told, summary=summary)

"""Diagnoses one source: reads it, chooses a window, runs the playbooks, reports the best result."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from ray_sentinel.diagnose import ending, stats, trust
from ray_sentinel.diagnose.case import TOP_LEVEL, DiagnoseOptions, JobCase
from ray_sentinel.diagnose.jobcheck import EXPECTED, check_job, confirm_triage
from ray_sentinel.diagnose.logs import LogFacts
from ray_sentinel.diagnose.panel import listed
from ray_sentinel.diagnose.playbooks import Playbook, answer_of, named, playbooks
from ray_sentinel.diagnose.playbooks.collective_hang import STANDING
from ray_sentinel.diagnose.plotting import plots
from ray_sentinel.diagnose.series import TimeSeries
from ray_sentinel.diagnose.view import View
from ray_sentinel.diagnose.zoom import zoom
from ray_sentinel.errors import InputError
from ray_sentinel.model.diagnosis import Diagnosis, DiagnosisReport, Inventory, Outcome

PASSED_WEIGHT = 0.45
"""Greatest weight of what the job recovered from, if something else is known to have ended it."""
LESS = 0.01
"""By how much an answer weighs less than the one that outranks it."""
SAID_BONUS = 0.1
"""What is added to the weight of an answer that the log's own words point to."""
IDLE_PERCENT = 10.0
"""Per cent of GPU utilisation that setting up a job takes at most; above it, a GPU has worked. More
than GPU_IDLE: loading weights and warming up run a few kernels."""
LEAD_SECONDS = 1800.0
"""Seconds read before an explicit window, so that usual levels can be learned."""


def examine(
    source: TimeSeries,
    *,
    logs: LogFacts | None = None,
    options: DiagnoseOptions | None = None,
    chosen: Playbook | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> DiagnosisReport:
    """Diagnose a job. ``chosen`` is the only playbook to run; without it, all that apply are run.

    Raises InputError if the source has no series at all.
    """
    options = options or DiagnoseOptions()
    case = JobCase(_view(source, options, progress), logs, options)
    inventory = take_stock(case)
    if chosen is not None:
        progress(chosen.TITLE)
        diagnosis = answer_of(chosen, case)
        others: tuple[Diagnosis, ...] = ()
    else:
        diagnosis, others = _best(case, progress)
    near = None
    if diagnosis.outcome == "found":
        near = zoom(case, diagnosis, chosen or named(diagnosis.playbook), progress)
    if near is not None:
        diagnosis = near.diagnosis
        warnings = (*inventory.warnings, near.note)
        inventory = msgspec.structs.replace(inventory, warnings=warnings)
    progress("plots")
    diagnosis = _with_ghosts(case, diagnosis)
    logged = tuple(fact for fact in case.logs.facts if fact.source != "monitoring")[:12]
    diagnosis = msgspec.structs.replace(
        diagnosis,
        plots=plots(near.case if near else case, diagnosis),
        logs=(*diagnosis.logs, *logged),
    )
    return DiagnosisReport(
        inventory=inventory,
        diagnosis=diagnosis,
        others=others,
        triage=confirm_triage(case.logs, diagnosis),
    )


def _with_ghosts(case: JobCase, diagnosis: Diagnosis) -> Diagnosis:
    """The diagnosis, with a sentence about hosts whose hardware series were not real for a time."""
    blind = sorted(host for host, cells in case.ghosts.items() if cells.any())
    if not blind:
        return diagnosis
    text = (
        f" The hardware series of {listed(blind)} are ghosts for a part of the time (an exporter "
        "that hung and went on serving old values): nothing is said of them then."
    )
    return msgspec.structs.replace(diagnosis, root_cause=diagnosis.root_cause + text)


def _view(source: TimeSeries, options: DiagnoseOptions, progress: Callable[[str], None]) -> View:
    span = source.span()
    if span is None or not source.families():
        raise InputError(
            f"{source.title} holds no series at all: Prometheus never scraped anything there. "
            "`ray-sentinel triage` works from the logs alone"
        )
    start, end = span
    if options.window is not None:
        start = max(start, options.window[0] - LEAD_SECONDS)
        end = min(end, options.window[1])
    if end < start:
        raise InputError(
            f"{source.title} has data from {span[0]:.0f} to {span[1]:.0f} (Unix seconds); "
            "the window asked for lies outside"
        )
    return View(source, start, end, progress=progress)


def _best(
    case: JobCase, progress: Callable[[str], None]
) -> tuple[Diagnosis, tuple[Diagnosis, ...]]:
    answers = []
    for playbook in playbooks():
        if playbook.applies(case) > 0:
            progress(playbook.TITLE)
            answers.append(answer_of(playbook, case))
    answers = _without_passed(answers)
    # Where several explain the job, the one that the log's own words point to comes first.
    said = EXPECTED.get(case.logs.failure, frozenset())
    answers.sort(key=lambda answer: -(answer.weight + SAID_BONUS * (answer.analysis in said)))
    if answers and answers[0].outcome == "found" and answers[0].weight > 0:
        return answers[0], tuple(answers[1:])
    return _all_clear(case, answers), tuple(answers)


def _without_passed(answers: list[Diagnosis]) -> list[Diagnosis]:
    """What ended the job outranks what it had recovered from, and what only slowed it: slow steps
    end no job. An end of which nobody is named may have its cause in what slowed it."""
    ends = [answer for answer in answers if answer.outcome == "found" and answer.ended_job]
    if not ends:
        return answers
    sure = max((answer.weight for answer in ends if answer.culprits), default=1.0)
    return [
        msgspec.structs.replace(answer, weight=min(answer.weight, PASSED_WEIGHT))
        if answer.passed
        else msgspec.structs.replace(answer, weight=min(answer.weight, sure - LESS))
        if not answer.ended_job and answer.cause in named(answer.playbook).SLOWING
        else answer
        for answer in answers
    ]


def _all_clear(case: JobCase, answers: Sequence[Diagnosis]) -> Diagnosis:
    line = case.line
    outcome, cause, text = _without_fault(case, answers)
    # Causes that explain an end only if somebody states that it was not intended.
    ends = [one.root_cause for one in answers if one.analysis == "heartbeat" and one.chain]
    if ends and cause in {"none", "ended-early"} and not case.logs.files:
        text += f" No log was collected that tells why it ended. If it was not to end: {ends[0]}"
    return Diagnosis(
        analysis="health-check",
        playbook="all",
        outcome=outcome,
        cause=cause,
        root_cause=text,
        confidence=_confidence(outcome, cause, answers),
        window=(line.start, line.end),
        evidence=tuple(fact for answer in answers for fact in answer.evidence[:2]),
        anomalies=tuple(text for answer in answers for text in answer.anomalies),
    )


def _confidence(outcome: Outcome, cause: str, answers: Sequence[Diagnosis]) -> float:
    """How sure the answers are: of what is not known, those that say so."""
    own = [
        answer.confidence
        for answer in answers
        if outcome == "healthy" or (answer.outcome, answer.cause) == (outcome, cause)
    ]
    return max(own, default=0.5)


def _without_fault(case: JobCase, answers: Sequence[Diagnosis]) -> tuple[Outcome, str, str]:
    """Outcome, cause and sentence where no playbook found a fault."""
    unknown = [answer for answer in answers if answer.outcome == "unknown"]
    line, last = case.line, ending.find(case)
    logs = case.logs
    done = (last is not None and last.done) or logs.summary or logs.ended == "completed"
    done = done and not logs.failed
    # In a job that stands still, healthy parts mean nothing.
    stopped = [answer for answer in unknown if answer.cause in {"stopped", STANDING}]
    well = any(answer.outcome == "healthy" for answer in answers)
    if stopped and not done:
        return stopped[0].outcome, stopped[0].cause, stopped[0].root_cause
    if unknown and not done and not well:
        return unknown[0].outcome, unknown[0].cause, unknown[0].root_cause
    if logs.failed:
        kind = f" ({logs.failure})" if logs.failure else ""
        text = (
            f"By its log the job failed{kind}; no playbook found the cause in its series. "
            "`ray-sentinel triage` reads the log."
        )
        return "unknown", "failed", text
    if last is not None and last.early:
        return "unknown", "ended-early", last.text
    if not line.trained and _never_worked(case):
        text = (
            "No step was recorded, and no GPU was ever busy: the job never began to train. "
            "No playbook found a fault; its logs and stacks tell what it waited for."
        )
        return "unknown", "never-trained", text
    text = "Healthy: no playbook found a fault"
    if line.trained:
        text += f"; steps went on to {line.steps[-1]:.0f}"
    text += "."
    notes = [note for answer in answers if answer.outcome == "healthy" for note in answer.anomalies]
    if notes:
        text += f" Worth a look: {listed(notes, 3)}."
    return "healthy", "none", f"{text} {last.text}" if last is not None else text


def _never_worked(case: JobCase) -> bool:
    """Whether GPU utilisation is known and never exceeded what setting up a job takes."""
    panel = case.view.panel("gpu.util")
    if panel.empty:
        return False
    busiest = stats.quantile(panel.values, TOP_LEVEL, axis=1)
    return bool(np.nanmax(busiest, initial=0.0) < IDLE_PERCENT)


def take_stock(case: JobCase) -> Inventory:
    """What the source holds and what cannot be trusted, before any verdict."""
    view, line = case.view, case.line
    groups, other = trust.groups(view.families)
    power = view.raw("gpu.power")
    gpus = power if not power.empty else view.raw("gpu.util")
    warnings = list(view.source.notes)
    for host, cells in sorted(case.ghosts.items()):
        seconds = float(cells.sum()) * view.step
        warnings.append(
            f"{host}: {seconds:.0f} s of its hardware series are ghosts (the exporter's cycle time "
            "and all GPU power stand still together); they are left out"
        )
    fill = view.raw("train.fill")
    if not fill.empty and (filled := int((fill.values > 0).sum())):
        warnings.append(f"{filled} cells of the training series are synthetic fill; left out")
    warnings += [fact.text for fact in case.logs.facts if fact.source == "monitoring"][:10]
    gaps = trust.gaps(case.present, view)
    if gaps:
        lost = sum(right - left + view.step for left, right in gaps)
        warnings.append(f"{len(gaps)} gap(s) without any sample, {lost:.0f} s together")
    if said := trust.unseen(len(case.hosts), case.logs.arguments):
        warnings.append(said)
    if len(case.hosts) == 1:
        warnings.append("one host only: it cannot be compared with others")
    return Inventory(
        source=view.source.title,
        hosts=case.hosts,
        families=groups,
        other_families=other,
        span=(line.start, line.end),
        interval=view.interval,
        cell=view.step,
        gpus=len(gpus.rows),
        steps=(float(np.min(line.steps)), float(line.steps[-1])) if line.steps.size else None,
        gaps=gaps,
        missing=tuple(trust.missing(view)),
        warnings=tuple(warnings),
        right_job=check_job(case),
    )

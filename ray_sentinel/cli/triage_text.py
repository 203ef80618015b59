"""A triage as text for people."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.cli.output import console, text_printer
from ray_sentinel.model.triage import LogCulprit, LogLine, Triage
from ray_sentinel.report.words import duration, percent, second

_COLOURS = {
    "completed": "green",
    "running": "green",
    "soft-success": "yellow",
    "unknown-death": "yellow",
}


def print_triage(answer: Triage) -> None:
    """Print the answer, the evidence and the next steps."""
    from rich.text import Text

    say = text_printer()
    head = Text(answer.kind, style=f"bold {_COLOURS.get(answer.kind, 'red')}")
    head.append(f"  ({answer.outcome}, confidence {percent(answer.confidence)})", style="dim")
    console().print(head)
    for style, line in _lines(answer):
        say(line, style)


def _lines(answer: Triage) -> Iterator[tuple[str, str]]:
    yield "", answer.summary
    if answer.cause:
        yield "", answer.cause
    for culprit in answer.culprits:
        yield "bold", f"culprit: {_culprit(culprit)}"
    if answer.exception is not None:
        frame = answer.exception.frame
        yield "", f"exception: {answer.exception.kind}{f' at {frame}' if frame else ''}"
    yield from _progress(answer)
    if answer.evidence:
        yield "bold", "evidence"
        for line in answer.evidence:
            yield "", f"  {_evidence(line)}"
    echoes = [echo for echo in answer.echoes if echo.kind not in ("harmless",)]
    if echoes:
        yield "bold", "echoes, and errors that training recovered from"
        for echo in echoes[:12]:
            yield "dim", f"  {echo.count} × {echo.kind} ({echo.signature}): {_place(echo.first)}"
    if answer.next_steps:
        yield "bold", "next steps"
        for number, step in enumerate(answer.next_steps, 1):
            yield "", f"  {number}. {step}"
    if answer.playbook:
        yield (
            "",
            (
                f"then: ray-sentinel diagnose SOURCE --playbook {answer.playbook}   "
                "(SOURCE: the job's log folder, or the URL of its Prometheus)"
            ),
        )
    for note in (*answer.sampled, *answer.problems):
        yield "dim", f"note: {note}"


def _progress(answer: Triage) -> Iterator[tuple[str, str]]:
    steps = answer.progress
    facts = []
    if answer.phase:
        lasted = answer.phase_seconds
        told = f" for {duration(lasted)}" if lasted is not None else ""
        facts.append(f"phase {answer.phase}{told}")
    if steps.last_step is not None:
        total = f" of {steps.total_steps}" if steps.total_steps else ""
        facts.append(f"last step {steps.last_step}{total}")
    if steps.step_seconds is not None:
        facts.append(f"{steps.step_seconds:.3g} s per step")
    if steps.expected_step is not None:
        facts.append(f"step {steps.expected_step} would have been reached by the end of the logs")
    if steps.checkpoint_step is not None:
        facts.append(f"last checkpoint at step {steps.checkpoint_step}")
    if steps.lost_steps is not None:
        seconds = f" ({duration(steps.lost_seconds)})" if steps.lost_seconds is not None else ""
        facts.append(f"{steps.lost_steps} steps{seconds} lost since then")
    if facts:
        yield "", ", ".join(facts)
    if answer.first_error_at is not None:
        yield "", f"first error at {second(answer.first_error_at)} UTC"


def _culprit(who: LogCulprit) -> str:
    parts = []
    if who.rank is not None:
        parts.append(f"rank {who.rank}")
    if who.node:
        parts.append(f"node {who.node}")
    if who.pid is not None:
        parts.append(f"pid {who.pid}")
    if who.actor:
        parts.append(who.actor)
    if who.gpu:
        parts.append(f"GPU {who.gpu}")
    return f"{', '.join(parts) or '?'}: {who.reason}"


def _place(line: LogLine) -> str:
    number = f":{line.line}" if line.line is not None else ""
    return f"{line.file}{number}"


def _evidence(line: LogLine) -> str:
    return f"{_place(line)} [{line.note}] {line.text[:300]}"

"""Compare jobs with the first one: configuration, and metrics over the steps in common.

Each JOB is a job's folder, a Prometheus URL or a history file. A job without time series is
compared by its logs.

Exit codes: 0 no significant difference; 1 significant differences; 2 wrong usage; 3 a source
cannot be reached.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
from rich.markdown import Markdown

from ray_sentinel.cli import named_paths
from ray_sentinel.cli.diagnosis import progress_bar
from ray_sentinel.cli.job_logs import gather
from ray_sentinel.cli.options import add_program
from ray_sentinel.cli.output import clean, print_json, write_report
from ray_sentinel.cli.terminal import Console
from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.comparison import Side, compare
from ray_sentinel.diagnose.logs import LogFacts
from ray_sentinel.diagnose.view import View
from ray_sentinel.diagnose.wording import size
from ray_sentinel.errors import InputError, UsageError
from ray_sentinel.http.page_client import without_token
from ray_sentinel.model.comparison import Comparison, number
from ray_sentinel.report.html import comparison_html
from ray_sentinel.report.markdown_text import cell, escaped, table
from ray_sentinel.store.event_files.find import find_event_files
from ray_sentinel.store.event_files.hparams import hparams_alone
from ray_sentinel.store.event_files.source import with_config, with_events, with_parameters
from ray_sentinel.store.open import open_source

_COLUMNS = ("Metric", "Job A", "Job B", "Delta", "Hosts that stand out", "Likely cause")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "jobs",
        nargs="+",
        metavar="JOB",
        help="job's folder, Prometheus URL or history file; two or more",
    )
    parser.add_argument(
        "--run",
        action="append",
        default=[],
        metavar="NAME",
        help="run to read if the event files hold several; give it once for all jobs, or once for "
        "each job",
    )
    add_program(parser, "--prometheus")
    parser.add_argument(
        "--report",
        metavar="FILE",
        help="also write the comparison to FILE, as HTML (.html) or else Markdown",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(args: argparse.Namespace) -> int:
    """Compare each further job with the first."""
    if len(args.jobs) < 2:
        raise UsageError("name two jobs at least")
    if len(args.run) not in {0, 1, len(args.jobs)}:
        raise UsageError(f"give --run once, or once for each of the {len(args.jobs)} jobs")
    names = args.run if len(args.run) > 1 else (args.run or [""]) * len(args.jobs)
    with ExitStack() as stack:
        progress = stack.enter_context(progress_bar(enabled=not args.json))
        sides = [
            _side(stack, job, name, args.prometheus, progress)
            for job, name in zip(args.jobs, names, strict=True)
        ]
        found = [compare(sides[0], side) for side in sides[1:]]
    text = "\n\n".join(markdown(one) for one in found) + "\n"
    if args.report:
        page = Path(args.report).suffix.lower() == ".html"
        write_report(Path(args.report), comparison_html(found) if page else text)
    if args.json:
        bare: list[dict[str, Any]] = [msgspec.to_builtins(one) for one in found]
        for one in bare:
            del one["plots"]  # only the page draws them
        print_json({"analysis": "multi-job-comparison", "comparisons": bare})
    else:
        Console().print(Markdown(clean(text)))
    return int(any(delta.significant for one in found for delta in one.deltas))


def _side(
    stack: ExitStack, job: str, name: str, binary: str, progress: Callable[[str], None]
) -> Side:
    shown = without_token(named_paths.source(job))
    progress(f"opening {shown}")
    title = f"{shown} ({name})" if name else shown
    try:
        opened = stack.enter_context(open_source(job, binary=binary, run=name))
    except InputError:
        if not Path(job).is_dir() or find_event_files(Path(job)):
            raise
        return _logs_alone(job, name, title, progress)
    notes: list[str] = []
    parameters = hparams_alone(opened.folder, name, notes)
    source = with_events(opened.source, opened.folder, "" if parameters else name)
    logs = gather(opened.folder, progress)
    logs = with_parameters(with_config(logs, source), parameters)
    span = source.span()
    case = JobCase(View(source, *span, progress=progress), logs) if span is not None else None
    return Side(title=title, case=case, logs=logs, notes=tuple(notes))


def _logs_alone(job: str, name: str, title: str, progress: Callable[[str], None]) -> Side:
    """A job without series. Raises InputError if nothing else is known of it either."""
    notes: list[str] = []
    parameters = hparams_alone(Path(job), name, notes)
    logs = with_parameters(gather(Path(job), progress), parameters)
    if logs == LogFacts():
        known = "it holds no series, no event files, no logs and no parameters of one run"
        raise InputError("; ".join([f"{job} cannot be compared: {known}", *notes]))
    return Side(title=title, case=None, logs=logs, notes=tuple(notes))


def _level(value: float, unit: str) -> str:
    return size(value) if unit == "B" else f"{number(value)} {unit}".rstrip()


def markdown(one: Comparison) -> str:
    """One comparison as Markdown."""
    steps = f"{one.steps[0]:.0f} to {one.steps[1]:.0f}" if one.steps else "none"
    rows = [
        (delta.title, _level(delta.first, delta.unit), _level(delta.second, delta.unit),
         delta.change if delta.significant else f"{delta.change} (within noise)",
         delta.hosts or "-", delta.cause or "-")
        for delta in one.deltas
    ]  # fmt: skip
    config = [(name, first, second) for name, (first, second) in one.config.items()]
    parts = [
        f"## Multi-Job Comparison: {cell(one.first)} vs {cell(one.second)}",
        "### Config differences",
        "\n".join(table(("Parameter", "Job A", "Job B"), config)) if config else "None known.",
        f"### Overlapping step range: {steps}",
        "### Metric comparison (steady-state averages over overlapping steps)",
        "\n".join(table(_COLUMNS, rows)) if rows else "None.",
        "### Root cause",
        escaped(one.root_cause),
    ]
    if one.standing:
        parts += ["### Who stands out", "\n".join(f"- {escaped(text)}" for text in one.standing)]
    if one.source_trace:
        trace = [f"{number}. {escaped(place)}" for number, place in enumerate(one.source_trace, 1)]
        parts += ["### Source code trace", "\n".join(trace)]
    if one.notes:
        parts.append("\n".join(f"- {escaped(note)}" for note in one.notes))
    return "\n\n".join(parts)

"""Find out from a job's time series what went wrong, where it began, and which node caused it.

SOURCE is a finished job's folder (or its prometheus/ folder), the URL of a Prometheus or of a
running coordinator, or an embedded history (.db). The default is this job's own log folder.

  ray-sentinel diagnose /jobs/1234
  ray-sentinel diagnose http://127.0.0.1:9190 --playbook network-health
  ray-sentinel diagnose /jobs/1234 --window last-step --report diagnosis.html

Exit codes: 0 healthy, or the playbook found nothing; 1 something was found, or there are not enough
data to tell; 2 wrong usage; 3 the source cannot be reached.
"""

from __future__ import annotations

import argparse
import time
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec
from rich.markdown import Markdown

from ray_sentinel import config
from ray_sentinel.cli import named_paths
from ray_sentinel.cli.diagnosis import progress_bar
from ray_sentinel.cli.job_logs import gather
from ray_sentinel.cli.options import add_program, amount, port, positive
from ray_sentinel.cli.output import clean, json_text, print_json, write_report
from ray_sentinel.cli.terminal import Console
from ray_sentinel.diagnose.case import DiagnoseOptions
from ray_sentinel.diagnose.examine import examine
from ray_sentinel.diagnose.logs import LogFacts
from ray_sentinel.diagnose.playbooks import named
from ray_sentinel.errors import InputError
from ray_sentinel.http.page_client import without_token
from ray_sentinel.model.diagnosis import DiagnosisReport
from ray_sentinel.report.contract import diagnosis_dict
from ray_sentinel.report.diagnosis_markdown import markdown
from ray_sentinel.report.html import diagnosis_html
from ray_sentinel.report.series import plots_json
from ray_sentinel.store.event_files.source import with_config, with_events
from ray_sentinel.store.incident_window import incident_window
from ray_sentinel.store.open import Opened, open_source
from ray_sentinel.store.windows import parse_window


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "source",
        nargs="?",
        metavar="SOURCE",
        help="job's folder, URL or history file (default: the configured log folder)",
    )
    parser.add_argument(
        "--playbook", metavar="NAME", help="playbook to run (default: all that apply)"
    )
    parser.add_argument(
        "--window",
        metavar="WINDOW",
        help="span of time to look at: START..END (Unix seconds, ISO 8601, or step-N), last-step, "
        "last-30m, or crash",
    )
    parser.add_argument(
        "--run", metavar="NAME", default="", help="run to read if the event files hold several"
    )
    parser.add_argument(
        "--incident", metavar="ID", help="look at the time around this incident of the job"
    )
    parser.add_argument(
        "--accused",
        metavar="HOST,..",
        help="hosts that a heartbeat timeout named (default: from the logs)",
    )
    parser.add_argument(
        "--coordinator",
        metavar="HOST",
        help="host of the coordinator that receives the heartbeats (default: all hosts)",
    )
    parser.add_argument(
        "--crash-time",
        metavar="TIME",
        help="time at which the job ended (default: from the logs, or else from the series)",
    )
    parser.add_argument(
        "--heartbeat-timeout",
        type=positive,
        metavar="SECONDS",
        help="seconds without a heartbeat after which a task is declared dead (default: from the "
        "logs, or else 100)",
    )
    parser.add_argument(
        "--checkpoint-period",
        type=positive,
        metavar="STEPS",
        help="steps between two checkpoints (default: from the logs)",
    )
    parser.add_argument(
        "--failed-checkpoint",
        type=amount,
        metavar="STEP",
        help="step whose checkpoint failed (default: from the logs)",
    )
    parser.add_argument(
        "--logs", metavar="DIR", help="folder of the job's logs, if they are not in SOURCE"
    )
    parser.add_argument(
        "--no-logs", action="store_true", help="use the time series only, and no logs"
    )
    parser.add_argument(
        "--report",
        action="append",
        default=[],
        metavar="FILE",
        help="also write a report to FILE.md, FILE.html or FILE.json (repeatable)",
    )
    parser.add_argument(
        "--plots",
        metavar="FILE",
        help="also write the series that an HTML report draws to FILE, as JSON",
    )
    add_program(parser, "--prometheus")
    parser.add_argument(
        "--port",
        type=port,
        default=0,
        metavar="PORT",
        help="first port to try for a read-only Prometheus (default: 9190)",
    )
    parser.add_argument(
        "--deadline",
        type=positive,
        default=30.0,
        metavar="SECONDS",
        help="seconds that one query may take (default: %(default)g)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(args: argparse.Namespace) -> int:
    """Diagnose; 0 healthy, 1 something found, or too few data to tell."""
    started = time.monotonic()
    chosen = named(args.playbook) if args.playbook else None
    where = named_paths.source(args.source or _own_folder())
    if args.logs and not named_paths.is_folder(args.logs):
        raise InputError(f"--logs: {args.logs} is a file; give the folder of the logs")
    opening: AbstractContextManager[Opened] = open_source(
        where, binary=args.prometheus, port=args.port, deadline=args.deadline, run=args.run
    )
    with progress_bar(enabled=not args.json) as progress:
        progress(f"opening {without_token(where)}")
        with opening as opened:
            folder = Path(args.logs) if args.logs else opened.folder
            logs = LogFacts() if args.no_logs else gather(folder, progress)
            source = with_events(opened.source, None if args.no_logs else opened.folder, args.run)
            report = examine(
                source,
                logs=with_config(logs, source),
                options=_options(args, opened),
                chosen=chosen,
                progress=progress,
            )
            report = msgspec.structs.replace(
                report,
                seconds=time.monotonic() - started,
                source_seconds=getattr(opened.source, "seconds_waiting", 0.0),
            )
    for file in args.report:
        write_report(Path(file), _rendered(Path(file), report))
    if args.plots:
        write_report(Path(args.plots), plots_json(report.diagnosis.plots).decode())
    if args.json:
        print_json(diagnosis_dict(report))
    else:
        Console().print(Markdown(clean(markdown(report))))
    return 0 if report.diagnosis.outcome in {"healthy", "not-this"} else 1


def _own_folder() -> str:
    """The configured log folder. Raises InputError if it is not on this machine."""
    folder = config.load().directory()
    if not folder.is_dir():
        raise InputError(
            f"there is no log folder {folder} on this machine; name the job's folder, or the URL "
            "of its Prometheus: ray-sentinel diagnose SOURCE"
        )
    return str(folder)


def _options(args: argparse.Namespace, opened: Opened) -> DiagnoseOptions:
    window = None
    if args.incident:
        window = incident_window(opened.folder, args.incident)
    elif args.window:
        window = parse_window(args.window, opened.source)
    crash = parse_window(args.crash_time, opened.source)[0] if args.crash_time else None
    return DiagnoseOptions(
        window=window,
        accused=tuple(filter(None, (args.accused or "").split(","))),
        coordinator=args.coordinator or "",
        crash_at=crash,
        heartbeat_timeout=args.heartbeat_timeout,
        checkpoint_period=args.checkpoint_period,
        failed_checkpoint=args.failed_checkpoint,
        now=time.time(),
    )


def _rendered(path: Path, report: DiagnosisReport) -> str:
    """The report in the format that the file's name asks for. Raises InputError for another."""
    formats = {".md": markdown, ".html": diagnosis_html}
    suffix = path.suffix.lower()
    if suffix == ".json":
        return json_text(diagnosis_dict(report)) + "\n"
    if suffix not in formats:
        raise InputError(f"{path}: a report is written as .md, .html or .json")
    return formats[suffix](report)

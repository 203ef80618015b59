"""Write what ranks and roles did over the last hour, for another program.

    ray-sentinel export perfetto
    ray-sentinel export perfetto --job llama --to lanes.json

`perfetto` writes Chrome's trace events, which https://ui.perfetto.dev and chrome://tracing open: a
process for each job, and a thread for each rank, group of ranks or role, as on the page.

Exit codes: 0 the file is written; 1 there is nothing to write; 2 wrong usage; 3 no coordinator can
be reached.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from ray_sentinel.cli.options import add_common, add_url
from ray_sentinel.cli.output import (
    json_text,
    print_error,
    print_json_line,
    text_printer,
    write_report,
)
from ray_sentinel.cli.reach import asked
from ray_sentinel.model.last_hour import LanesReport
from ray_sentinel.report.trace_events import trace_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_common(parser)
    add_url(parser)
    parser.add_argument("what", choices=("perfetto",), help="format to write")
    parser.add_argument(
        "--job", default="", metavar="NAME", help="job to export (default: all jobs)"
    )
    parser.add_argument(
        "--to",
        type=Path,
        default=Path("ray-sentinel-lanes.json"),
        metavar="FILE",
        help="file to write, unless --json prints it (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Ask for the lanes and write them."""
    with asked(args) as found:
        report = found.ask("lanes", LanesReport)
    jobs = tuple(job for job in report.jobs if args.job in ("", job.job))
    if not jobs:
        whose = f"of {args.job}" if args.job else "of any job"
        print_error(f"nothing is known of the last hour {whose}", as_json=args.json)
        return 1
    trace = trace_of(msgspec.structs.replace(report, jobs=jobs))
    if args.json:
        print_json_line(trace)
        return 0
    write_report(args.to, json_text(trace, indent=0))
    lanes = sum(len(job.lanes) for job in jobs)
    text_printer()(
        f"{args.to}: {lanes} lanes of {len(jobs)} jobs; open it in https://ui.perfetto.dev"
    )
    return 0

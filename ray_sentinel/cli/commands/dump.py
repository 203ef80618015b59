"""Capture the stacks of a running job now, without waiting for a suspicion.

Exit codes: 0 something was captured; 1 no such job runs; 2 wrong usage; 3 no coordinator can be
reached.
"""

from __future__ import annotations

import argparse
import time

from ray_sentinel.cli.options import add_common, amount
from ray_sentinel.cli.output import print_json, text_printer
from ray_sentinel.cli.reach import CoordinatorConnection, coordinator
from ray_sentinel.model.incident import Incident
from ray_sentinel.report.contract import incident_dict


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_common(parser)
    parser.add_argument(
        "--job", default="", metavar="NAME", help="job to capture (default: all running jobs)"
    )
    parser.add_argument(
        "--timeout",
        type=amount,
        default=90.0,
        metavar="SECONDS",
        help="seconds to wait until the files are written (default: %(default)g)",
    )


def run(args: argparse.Namespace) -> int:
    """Ask for it, and wait until the files are written."""
    with coordinator(args.address) as found:
        asked = found.ask("dump", tuple[Incident, ...], args.job)
        done = _wait(found, {incident.id for incident in asked}, args.timeout)
    if args.json:
        print_json([incident_dict(incident) for incident in done])
        return 0 if done else 1
    say = text_printer()
    if not done:
        which = f"no job called {args.job}" if args.job else "no job"
        say(f"{which} runs, or it is being captured already")
        return 1
    for incident in done:
        where = incident.bundle or f"not yet written after {args.timeout:.0f} s"
        say(f"{incident.job}: {where}")
    return 0


def _wait(found: CoordinatorConnection, ids: set[str], seconds: float) -> list[Incident]:
    deadline = time.monotonic() + seconds
    while True:
        mine = [i for i in found.ask("incidents", tuple[Incident, ...]) if i.id in ids]
        if all(incident.bundle for incident in mine) or time.monotonic() > deadline:
            return mine
        time.sleep(0.2)

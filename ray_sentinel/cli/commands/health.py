"""Check the health of a training: GPUs, Ray's resources, transport, checkpoints, collectors.

Asks the coordinator and the agents of all nodes. In a cluster without them, and with --local, only
this node is checked.

Exit codes: 0 healthy; 1 there are issues; 2 wrong usage; 3 no cluster can be reached.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ray_sentinel.cli.options import add_common
from ray_sentinel.cli.output import print_json, text_printer, write_report
from ray_sentinel.model.health import Health


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_common(parser)
    parser.add_argument(
        "--checkpoints", metavar="DIR", type=Path, help="folder of the job's checkpoints to check"
    )
    parser.add_argument("--local", action="store_true", help="check this node only, without Ray")
    parser.add_argument(
        "--report", metavar="FILE", type=Path, help="also write the report to FILE, as HTML"
    )


def run(args: argparse.Namespace) -> int:
    """Look and print."""
    told = _local(args.checkpoints) if args.local else _cluster(args.address, args.checkpoints)
    if args.report:
        from ray_sentinel.report.html import health_html

        write_report(args.report, health_html(told))
    if args.json:
        print_json(told)
    else:
        _print(told)
    return 0 if told.healthy else 1


def _cluster(address: str, checkpoints: Path | None) -> Health:
    from ray_sentinel.actors.coordinator.survey import survey
    from ray_sentinel.actors.deployment import cluster

    with cluster.connect(address) as ray:
        return survey(ray, checkpoints)


def _local(checkpoints: Path | None) -> Health:
    from ray_sentinel.monitor.local import local_health

    return local_health(checkpoints)


def _print(told: Health) -> None:
    from ray_sentinel.report.health_text import health_lines

    say = text_printer()
    for number, line in enumerate(health_lines(told)):
        style = "" if number else f"bold {'green' if told.healthy else 'red'}"
        style = "yellow" if line.startswith("  ! ") else style
        say(line, style)

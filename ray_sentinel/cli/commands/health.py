"""Whether the training is well: GPUs, Ray's resources, transport in use, checkpoints, collectors.

Asks the coordinator and the agents of all nodes. A cluster that nobody watches is looked at as far
as this node goes. With --local no cluster is asked at all.

Exit codes: 0 healthy, 1 there are issues, 3 no cluster answers.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ray_sentinel.cli.output import print_json, speaker
from ray_sentinel.cli.reach import add_common
from ray_sentinel.model.health import Health

HELP = "show whether the training, its GPUs and its transport are well"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_common(parser)
    parser.add_argument(
        "--checkpoints", metavar="DIR", type=Path, help="the folder that checkpoints are written to"
    )
    parser.add_argument("--local", action="store_true", help="look at this node only")


def run(args: argparse.Namespace) -> int:
    """Look and print."""
    told = _local(args.checkpoints) if args.local else _cluster(args.address, args.checkpoints)
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

    say = speaker()
    for number, line in enumerate(health_lines(told)):
        style = "" if number else f"bold {'green' if told.healthy else 'red'}"
        style = "yellow" if line.startswith("  ! ") else style
        say(line, style)

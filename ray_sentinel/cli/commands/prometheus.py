"""Time series: a Prometheus for a job, or what a Prometheus of your own needs.

`start DIR` runs one for a job here, in the foreground (`ray-sentinel up --prometheus` runs one on
the head). `view DIR` opens the data of a job, finished or running, on a free port of this machine
without changing them. `config` prints the scrape configuration and `rules` the alert rules for a
Prometheus of your own; `config --kubernetes` prints a PodMonitor of the Prometheus operator.
`download` downloads the program.

Exit codes: 0 well; 2 wrong usage, or a folder without data; 3 the program is missing, or what must
answer does not.
"""

from __future__ import annotations

import argparse
from types import ModuleType

from ray_sentinel.cli.prometheus import config, download, rules, start, view

HELP = "run a Prometheus for a job, view its data, or configure your own"
GROUP = "operate"
EXAMPLE = "ray-sentinel prometheus view /jobs/1234"

PARTS: dict[str, ModuleType] = {
    "config": config,
    "rules": rules,
    "start": start,
    "view": view,
    "download": download,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The parts, each with options of its own."""
    parts = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    for name, part in PARTS.items():
        own = parts.add_parser(name, help=part.HELP, description=part.__doc__)
        part.add_arguments(own)
        own.add_argument("--json", action="store_true", help="print JSON for programs")


def run(args: argparse.Namespace) -> int:
    """Do what was asked."""
    return int(PARTS[args.what].run(args))

"""Run a Prometheus for a job, view its data, or configure a Prometheus of your own.

`start DIR` runs one for a job on this machine, in the foreground (`ray-sentinel up --prometheus`
runs one on the head). `view DIR` opens the data of a job, finished or running, on a free port of
this machine without changing them. `config` prints the scrape configuration and `rules` the alert
rules for a Prometheus of your own; `config --kubernetes` prints a PodMonitor of the Prometheus
operator. `download` downloads the program.

Exit codes: 0 success; 2 wrong usage, or a folder without data; 3 the program is missing, or
something that must answer cannot be reached.
"""

from __future__ import annotations

import argparse
from types import ModuleType

from ray_sentinel.cli.prometheus import config, download, rules, start, view

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
        own.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(args: argparse.Namespace) -> int:
    """Do what was asked."""
    return int(PARTS[args.what].run(args))

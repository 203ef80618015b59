"""Explain evidence in files from anywhere: who holds the job up, of what kind, how sure.

    ray-sentinel explain stacks DIR

Exit code 0 when nothing is found, 1 when something is, 2 when no file can be read.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil

from ray_sentinel.cli import explainers

HELP = "explain dumps and stacks in files from anywhere"
GROUP = "explain"
EXAMPLE = "ray-sentinel explain flight-recorder /dumps"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One subcommand for each module in ``cli/explainers``."""
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    for info in sorted(pkgutil.iter_modules(explainers.__path__), key=lambda info: info.name):
        if info.name.startswith("_"):
            continue
        module = importlib.import_module(f"{explainers.__name__}.{info.name}")
        sub = kinds.add_parser(
            info.name.replace("_", "-"),
            help=module.HELP,
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(sub)
        sub.set_defaults(_explain=module.run)


def run(args: argparse.Namespace) -> int:
    """Run the explainer that was asked for."""
    return int(args._explain(args))

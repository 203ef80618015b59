"""Explain evidence in files from anywhere: who holds the job up, in what way, and how sure that is.

    ray-sentinel explain DIR
    ray-sentinel explain stacks DIR

DIR alone (or `folder DIR`) takes everything in a folder together: dumps of the flight recorder,
stacks, answers of NCCL RAS, logs, and an incident's record. If a folder has the name of a KIND,
write it with its path: ./stacks.

Exit codes: 0 nothing is found; 1 something is; 2 wrong usage, or no file can be read.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
from collections.abc import Sequence

from ray_sentinel.cli import explainers

WHOLE = "folder"
"""The kind of evidence that is meant where none is named."""


def kinds_of_evidence() -> list[str]:
    """The names of the subcommands, one for each module in ``cli/explainers``."""
    modules = pkgutil.iter_modules(explainers.__path__)
    return sorted(module.name.replace("_", "-") for module in modules)


def spelled_out(arguments: Sequence[str]) -> list[str]:
    """The arguments after the command, with ``folder`` in front if they name a path and no kind."""
    words = [word for word in arguments if not word.startswith("-")]
    if not words or words[0] in kinds_of_evidence():
        return list(arguments)
    return [WHOLE, *arguments]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The subcommands, each with options of its own."""
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    for kind in kinds_of_evidence():
        module = importlib.import_module(f"{explainers.__name__}.{kind.replace('-', '_')}")
        sub = kinds.add_parser(
            kind,
            help=module.HELP,
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(sub)
        sub.set_defaults(run_explainer=module.run)


def run(args: argparse.Namespace) -> int:
    """Run the explainer that was asked for."""
    return int(args.run_explainer(args))

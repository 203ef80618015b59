"""Watch the cluster live on a terminal: the verdict, who waits for whom, ranks, nodes and GPUs.

    ray-sentinel top
    ray-sentinel top --url http://127.0.0.1:9401

Press ? for the keys. For pipes and logs there is `ray-sentinel status [--watch]`.

Exit codes: 0 success; 2 wrong usage, or no terminal; 3 no coordinator can be reached, or Textual is
not installed.
"""

from __future__ import annotations

import argparse
import os
import sys

from ray_sentinel.cli.options import add_address, add_url, positive
from ray_sentinel.cli.reach import asked
from ray_sentinel.errors import MissingPartError, UnreachableError, UsageError

SHORTEST = 0.1
"""Shortest interval in seconds between two looks, as for ``status --watch``."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_address(parser)
    # Not offered, but answered by where it is to be had.
    parser.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
    add_url(parser)
    parser.add_argument(
        "--interval",
        type=positive,
        default=1.0,
        metavar="SECONDS",
        help=f"seconds between two looks (default: %(default)g; at least {SHORTEST:g})",
    )


def run(args: argparse.Namespace) -> int:
    """Show the screen until somebody quits."""
    if args.json:
        raise UsageError("top is for people: `ray-sentinel status --json` is for programs")
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM") == "dumb":
        raise UsageError("top needs a terminal: `ray-sentinel status --watch` needs none")
    try:
        from ray_sentinel.cli.top.app import TopApp
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "textual":
            raise
        raise MissingPartError(
            "top needs Textual, which is not installed: pip install textual"
        ) from None
    from ray_sentinel.cli.top.asking import StatusAsker
    from ray_sentinel.cli.top.gpus import GpuAsker
    from ray_sentinel.cli.top.stack import stack_taker

    with asked(args) as found:
        asker, gpus = StatusAsker(found, max(args.interval, SHORTEST)), GpuAsker()
        asker.ask_once()
        if asker.seen.status is None:
            raise UnreachableError(asker.seen.error)
        asker.start()
        gpus.start()
        try:
            TopApp(asker, gpus, take_stack=stack_taker(found)).run()
        finally:
            gpus.close()
            asker.close()
    return 0

"""Open a job's data (`prometheus view DIR`), finished or running, in a Prometheus of its own."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import Any

from ray_sentinel.cli.options import add_program, port
from ray_sentinel.cli.output import clean, print_json
from ray_sentinel.cli.prometheus.closing import until_closed

HELP = "open a job's data read-only, until Ctrl-C"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "folder", metavar="DIR", help="job's folder, or the data folder of its Prometheus"
    )
    add_program(parser, "--binary")
    parser.add_argument(
        "--port",
        type=port,
        default=0,
        metavar="PORT",
        help="first port to try (default: 9190)",
    )


def run(args: argparse.Namespace) -> int:
    """Open the data, and wait until it is closed."""
    from ray_sentinel.store.prometheus.readonly import read_only_prometheus
    from ray_sentinel.store.prometheus.tsdb import find_database

    database = find_database(Path(args.folder).expanduser())
    with (
        until_closed(),
        read_only_prometheus(database, binary=args.binary, port=args.port) as opened,
    ):
        _print_address(opened, as_json=args.json)
        while True:
            signal.pause()
    return 0


def _print_address(opened: tuple[str, Any, list[str]], *, as_json: bool) -> None:
    url, database, notes = opened
    if as_json:
        print_json({"url": url, "data": database.path, "span": database.span, "notes": notes})
    else:
        lines = [f"{database.path} is open at {url}", *notes, "Ctrl-C closes it"]
        sys.stdout.write("".join(f"{clean(line)}\n" for line in lines))
    sys.stdout.flush()

"""Download Prometheus (`prometheus download`): one pinned release, checked against its checksum."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ray_sentinel.cli.output import clean, print_json

HELP = "download the program: a pinned release, checked against its checksum"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--archive",
        default="",
        metavar="FILE",
        help="use this copy of the release instead of downloading it",
    )
    parser.add_argument(
        "--to",
        default="",
        metavar="DIR",
        help="folder to put it into (default: ~/.cache/ray_sentinel/bin)",
    )


def run(args: argparse.Namespace) -> int:
    """Download the release, and print its path."""
    from ray_sentinel.store.prometheus.download import PINNED, download

    written = download(
        Path(args.to).expanduser() if args.to else None,
        archive=Path(args.archive).expanduser() if args.archive else None,
    )
    if args.json:
        print_json({"version": PINNED.version, "written": [str(path) for path in written]})
    else:
        sys.stdout.write("".join(f"{clean(str(path))}\n" for path in written))
    return 0

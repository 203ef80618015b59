"""Options that several commands share, and types for numbers (``argparse``).

Invalid numbers are rejected: ``float`` alone accepts ``nan`` and ``inf``, which break every
comparison and every wait.
"""

from __future__ import annotations

import argparse
from pathlib import Path

MOST = 1e12
"""Largest number that an option accepts; Unix seconds stay below it for 30,000 years."""


def positive(text: str) -> float:
    """A number above 0."""
    number = _number(text)
    if number <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not more than 0")
    return number


def amount(text: str) -> float:
    """A number, 0 or more."""
    number = _number(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is less than 0")
    return number


def count(text: str) -> int:
    """A whole number, 0 or more."""
    if not (text.isascii() and text.isdigit()) or int(text) > MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of things")
    return int(text)


def port(text: str) -> int:
    """A TCP port; 0 if any port will do."""
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: 0 to 65535 is meant") from None
    if not 0 <= number <= 65_535:
        raise argparse.ArgumentTypeError(f"{text} is no port: 0 to 65535 is meant")
    return number


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None
    if not abs(number) <= MOST:
        raise argparse.ArgumentTypeError(f"{text} is no number that can be used")
    return number


def add_common(parser: argparse.ArgumentParser) -> None:
    """``--address`` and ``--json``."""
    add_address(parser)
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def add_session(parser: argparse.ArgumentParser) -> None:
    """``--temp-dir`` and ``--address``, for commands that read a Ray session's own logs."""
    parser.add_argument(
        "--temp-dir",
        type=Path,
        metavar="DIR",
        help="temp dir of this machine's Ray session (default: RAY_TEMP_DIR, or else /tmp/ray)",
    )
    parser.add_argument(
        "--address",
        default="",
        metavar="HOST:PORT",
        help="address of the Ray cluster, to reach other nodes (default: RAY_ADDRESS, or else the "
        "session's own cluster)",
    )


def add_url(parser: argparse.ArgumentParser) -> None:
    """``--url``, for commands that only read."""
    parser.add_argument(
        "--url",
        default="",
        metavar="LINK",
        help="ask the coordinator's page at this link instead of Ray, for example through a tunnel",
    )
    parser.add_argument(
        "--token-file",
        default="",
        metavar="FILE",
        help="file with the token for --url, or with the whole link (other users can see a token "
        "on the command line)",
    )


def add_address(parser: argparse.ArgumentParser) -> None:
    """``--address``."""
    parser.add_argument(
        "--address",
        default="",
        metavar="HOST:PORT",
        help="address of the Ray cluster (default: RAY_ADDRESS, or else the one on this machine)",
    )


def add_config(parser: argparse.ArgumentParser) -> None:
    """``--config``."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="configuration file, in TOML (default: RAY_SENTINEL_CONFIG)",
    )


def add_program(parser: argparse.ArgumentParser, option: str) -> None:
    """The option that names a Prometheus program."""
    parser.add_argument(
        option,
        metavar="PATH",
        default="",
        help="Prometheus program, or its folder (default: the one on PATH, or else the one of "
        "`prometheus download`)",
    )


def add_prefix(parser: argparse.ArgumentParser) -> None:
    """``--prefix``, for commands that read flight-recorder dumps."""
    parser.add_argument(
        "--prefix",
        metavar="PREFIX",
        help="read only files with this name before the rank (default: any name)",
    )

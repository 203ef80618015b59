"""Types for numbers on a command line (``argparse``); invalid ones are rejected.

``float`` alone accepts ``nan`` and ``inf``, which break every comparison and every wait.
"""

from __future__ import annotations

import argparse

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

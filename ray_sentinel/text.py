"""Text from outside, made harmless."""

from __future__ import annotations

from ray_sentinel import regex as re

CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
    r"\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""Characters that a terminal or a page obeys instead of showing: control characters except tab and
newline, those that change the direction of writing or end a line, and invisible tags."""

_DIGITS = re.compile(r"[0-9]+")


def clean(text: str) -> str:
    """``text`` without control characters, so that a hostile log line cannot drive a terminal.

    Each is shown as its escape (``\\x1b``); tab and newline stay.
    """
    return CONTROL.sub(lambda match: f"\\x{ord(match.group()):02x}", text)


def one_line(text: str, limit: int = 2000) -> str:
    """``clean(text)`` on one line of at most ``limit`` characters."""
    flat = clean(" ".join(text.split()))
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def counted(number: int, noun: str, plural: str = "s") -> str:
    """A number of things: "1 process", "2 processes" with "es" for the plural."""
    return f"{number} {noun}{'' if number == 1 else plural}"


def natural(name: str) -> str:
    """A sort key that puts node-9 before node-10."""
    return _DIGITS.sub(lambda digits: digits[0].rjust(12, "0"), name)


def port_number(text: str) -> int | None:
    """A TCP port from its decimal digits; None for whatever else stands there, and for 0.

    >>> port_number("29500"), port_number("65536"), port_number("²")
    (29500, None, None)
    """
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        return None
    number = int(text)
    return number if 0 < number < 65536 else None

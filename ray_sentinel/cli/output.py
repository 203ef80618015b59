"""How commands speak: JSON for programs, rich text for people, never raw control characters."""

from __future__ import annotations

import re
import sys
from typing import Any

import msgspec

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def clean(text: str) -> str:
    """``text`` without control characters, so that a hostile log line cannot drive a terminal.

    Each is shown as its escape (``\\x1b``); tab and newline stay.
    """
    return _CONTROL.sub(lambda match: f"\\x{ord(match.group()):02x}", text)


def print_json(value: Any) -> None:
    """``value`` (plain data or records) as one indented JSON document on stdout."""
    encoded = msgspec.json.encode(value, order="deterministic")
    sys.stdout.write(msgspec.json.format(encoded, indent=2).decode() + "\n")


def print_error(message: str, *, as_json: bool = False) -> None:
    """An error for people on stderr; with ``--json`` also as ``{"error": ...}`` on stdout."""
    if as_json:
        print_json({"error": message})
    sys.stderr.write(f"ray-sentinel: {clean(message)}\n")

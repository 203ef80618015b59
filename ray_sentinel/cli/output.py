"""How commands speak: JSON for programs, rich text for people, never raw control characters."""

from __future__ import annotations

import json
import sys
from typing import Any

import msgspec

from ray_sentinel.text import clean

__all__ = ["clean", "print_error", "print_json"]


def print_json(value: Any) -> None:
    """``value`` (plain data or records) as one indented JSON document on stdout."""
    try:
        encoded = msgspec.json.encode(value, order="deterministic")
    except UnicodeEncodeError:
        # A name of a file that is no UTF-8: as an escape, from which Python gets it back.
        encoded = json.dumps(msgspec.to_builtins(value), sort_keys=True).encode("ascii")
    sys.stdout.write(msgspec.json.format(encoded, indent=2).decode() + "\n")


def print_error(message: str, *, as_json: bool = False) -> None:
    """An error for people on stderr; with ``--json`` also as ``{"error": ...}`` on stdout."""
    if as_json and sys.stdout is not None:
        print_json({"error": message})
    if sys.stderr is not None:  # None where it was closed before we started
        sys.stderr.write(f"ray-sentinel: {clean(message)}\n")

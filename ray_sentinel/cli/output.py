"""How commands speak: JSON for programs, rich text for people, never raw control characters."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from ray_sentinel.text import clean

__all__ = ["clean", "print_error", "print_json"]


def print_json(value: Any) -> None:
    """``value`` (plain data or records) as one indented JSON document on stdout."""
    encoded = msgspec.json.encode(value, order="deterministic")
    sys.stdout.write(msgspec.json.format(encoded, indent=2).decode() + "\n")


def print_error(message: str, *, as_json: bool = False) -> None:
    """An error for people on stderr; with ``--json`` also as ``{"error": ...}`` on stdout."""
    if as_json:
        print_json({"error": message})
    sys.stderr.write(f"ray-sentinel: {clean(message)}\n")

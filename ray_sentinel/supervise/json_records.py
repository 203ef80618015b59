"""Encodes records for disk and pipes as JSON; bytes that are not UTF-8 survive the round trip.

Names of files, arguments and variables are bytes; Python represents those that are not UTF-8 by
lone surrogates (PEP 383), which msgspec's own JSON refuses. Here they are written as ``\\udcXX``
escapes.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def encode(record: Any) -> bytes:
    """A record as JSON, in ASCII."""
    return json.dumps(msgspec.to_builtins(record)).encode("ascii")


def decode(data: bytes, kind: type[T]) -> T | None:
    """The record; None for anything else, or if it is truncated."""
    try:
        return msgspec.convert(json.loads(data), kind)
    except (ValueError, RecursionError, msgspec.ValidationError):
        return None


def readable(text: str) -> str:
    """The text with bytes that are not text shown as escapes, for messages to others.

    >>> readable("a\\udcffb")
    'a\\\\udcffb'
    """
    return text.encode("utf-8", "backslashreplace").decode()

"""Records inside a rank's record that are rarely written, as MessagePack. Times are CLOCK_MONOTONIC
seconds."""

from __future__ import annotations

from typing import Literal

import msgspec


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """The current phase of a rank, and when it began."""

    name: str
    since: float


class ExitNote(msgspec.Struct, frozen=True, kw_only=True):
    """How a rank ended, written by itself on its way out."""

    at: float
    kind: Literal["exit", "exception", "detach"]
    text: str = ""


def clip(text: str, limit: int) -> str:
    """``text`` cut to ``limit`` bytes of UTF-8 and free of lone surrogates."""
    data = str(text).encode("utf-8", "replace")
    return data[:limit].decode("utf-8", "ignore")

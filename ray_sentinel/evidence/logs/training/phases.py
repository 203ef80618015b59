"""Which phase a job has reached, from the lines that announce its phases.

Marks are data (``[[phase]]`` in the catalogue): a phase is reached with its first mark; it ends
with the mark of another. Progress inside a phase (``Multi-thread loading shards: 40%``) counts as
life.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.evidence.logs.errors.signatures import Citation, Expressions


class PhaseMark(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Lines that show that a phase is under way."""

    id: str
    phase: str
    match: tuple[str, ...]
    pattern: tuple[str, ...] = ()
    usual_seconds: float | None = None
    """Seconds that the phase usually takes at most; a longer silence in it is worth mentioning."""
    quiet: bool = False
    """The phase prints nothing while it works."""
    note: str = ""
    source: tuple[Citation, ...] = ()


class CompiledMark(Expressions, frozen=True, kw_only=True):
    """A mark ready to match."""

    mark: PhaseMark


class PhaseSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A mark found in a file."""

    phase: str
    mark: str
    offset: int
    time: float | None
    text: str


def compile_marks(marks: Iterable[PhaseMark]) -> tuple[CompiledMark, ...]:
    """The marks, compiled; a later id replaces an earlier one."""
    compiled: dict[str, CompiledMark] = {}
    for mark in marks:
        compiled[mark.id] = CompiledMark(
            mark=mark,
            literals=tuple(word.lower() for word in mark.match),
            patterns=tuple(map(re.compile, mark.pattern)),
        )
    return tuple(compiled.values())


def find_phase(marks: Iterable[CompiledMark], text: str) -> PhaseMark | None:
    """The mark that ``text`` matches, or None."""
    lower = text.lower()
    for item in marks:
        if item.search(text, lower) is not None:
            return item.mark
    return None

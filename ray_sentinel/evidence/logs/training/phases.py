"""Which phase a job has reached, from the lines that announce its phases.

Marks are data (``[[phase]]`` in the catalogue): a phase is reached with its first mark; it ends
with the mark of another. Progress inside a phase (``Multi-thread loading shards: 40%``) counts as
life.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.errors import ConfigError
from ray_sentinel.evidence.logs.errors.signatures import Citation


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


class CompiledMark(msgspec.Struct, frozen=True):
    """A mark ready to match."""

    mark: PhaseMark
    literals: tuple[str, ...]
    patterns: tuple[re.Pattern[str], ...]


class PhaseSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A mark found in a file."""

    phase: str
    mark: str
    offset: int
    time: float | None
    text: str


def parse_marks(data: Mapping[str, Any], where: str) -> tuple[PhaseMark, ...]:
    """The ``[[phase]]`` tables of a catalogue file. Raises ConfigError, naming the entry."""
    marks = []
    for item in data.get("phase", ()):
        name = item.get("id", "?") if isinstance(item, Mapping) else "?"
        try:
            marks.append(msgspec.convert(item, PhaseMark))
        except msgspec.ValidationError as error:
            raise ConfigError(f"{where}: phase {name}: {error}") from None
    return tuple(marks)


def check_marks(marks: Iterable[PhaseMark], where: str) -> None:
    """Raise ConfigError, naming the entry, for an expression that cannot be used."""
    for mark in marks:
        for text in mark.pattern:
            try:
                re.check(re.compile(text))
            except re.error as error:
                raise ConfigError(
                    f"{where}: phase {mark.id}: pattern {text!r} is no regular expression to use: "
                    f"{error}"
                ) from None


def compile_marks(marks: Iterable[PhaseMark]) -> tuple[CompiledMark, ...]:
    """The marks, compiled; a later id replaces an earlier one."""
    compiled: dict[str, CompiledMark] = {}
    for mark in marks:
        patterns = tuple(re.compile(text) for text in mark.pattern)
        compiled[mark.id] = CompiledMark(mark, tuple(w.lower() for w in mark.match), patterns)
    return tuple(compiled.values())


def find_phase(marks: Iterable[CompiledMark], text: str) -> PhaseMark | None:
    """The mark that ``text`` matches, or None."""
    lower = text.lower()
    for item in marks:
        if any(word in lower for word in item.literals) and (
            not item.patterns or any(pattern.search(text) for pattern in item.patterns)
        ):
            return item.mark
    return None

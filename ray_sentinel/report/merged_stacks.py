"""The stacks of an incident side by side: where culprits and waiters differ, and what is the same.

Processes at the same place share one column. The outer calls that all columns have in common are
shown once, below them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ray_sentinel.model.incident import Verdict
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.report.stacks import MOST_FRAMES, of_culprit, stack_name
from ray_sentinel.text import one_line

MOST_COLUMNS = 6
MOST_NAMES = 6
"""Most names in one column; of the others only the number is told."""


class StackFrame(msgspec.Struct, frozen=True):
    """One call: the function, its file and line."""

    function: str
    place: str


class StackColumn(msgspec.Struct, frozen=True, kw_only=True):
    """Processes at one place; ``own`` are the calls that not all columns share, innermost first."""

    names: tuple[str, ...]
    more: int
    """Number of names that are left out."""
    culprit: bool
    label: str
    tool: str
    own: tuple[StackFrame, ...]
    left_out: int
    """Number of the column's own outer calls that are not shown."""


class MergedStacks(msgspec.Struct, frozen=True, kw_only=True):
    """``common`` are the outer calls of all columns, innermost first."""

    columns: tuple[StackColumn, ...]
    common: tuple[StackFrame, ...]
    common_left_out: int
    """Number of the outermost common calls that are not shown."""
    more: int
    """Number of columns that are left out."""


def merged_stacks(verdict: Verdict) -> MergedStacks | None:
    """The stacks side by side; None if no stack is known."""
    alike: dict[tuple[bool, tuple[str, ...], str], list[StackFact]] = {}
    for fact in verdict.stacks:
        key = (of_culprit(fact, verdict), fact.signature, fact.label)
        alike.setdefault(key, []).append(fact)
    if not alike:
        return None
    signatures = [signature for _, signature, _ in alike]
    shared = _shared(signatures) if len(signatures) > 1 else 0
    columns = tuple(
        _column(facts, verdict, shared) for facts in list(alike.values())[:MOST_COLUMNS]
    )
    common = [_frame(text) for text in reversed(signatures[0][:shared][-MOST_FRAMES:])]
    return MergedStacks(
        columns=columns,
        common=tuple(common),
        common_left_out=shared - len(common),
        more=len(alike) - len(columns),
    )


def _shared(signatures: Sequence[tuple[str, ...]]) -> int:
    """How many outer calls all have in common."""
    levels = zip(*signatures, strict=False)
    return next(
        (depth for depth, level in enumerate(levels) if len(set(level)) > 1),
        min(map(len, signatures)),
    )


def _column(facts: list[StackFact], verdict: Verdict, shared: int) -> StackColumn:
    own = facts[0].signature[shared:]
    inner = [_frame(text) for text in reversed(own[-MOST_FRAMES:])]
    return StackColumn(
        names=tuple(stack_name(fact, verdict) for fact in facts[:MOST_NAMES]),
        more=max(0, len(facts) - MOST_NAMES),
        culprit=of_culprit(facts[0], verdict),
        label=facts[0].label,
        tool=facts[0].tool,
        own=tuple(inner),
        left_out=len(own) - len(inner),
    )


def _frame(text: str) -> StackFrame:
    function, space, place = one_line(text, 300).partition(" (")
    return StackFrame(function, place.removesuffix(")") if space else "")

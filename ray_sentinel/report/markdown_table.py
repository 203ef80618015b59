"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from ray_sentinel.report.words import plain


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Its lines; what would break out of a cell is escaped."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(cell(text) for text in row) + " |" for row in rows]
    return lines


def cell(text: str) -> str:
    """Text from outside, for use in a table or its title."""
    return plain(text).replace("|", "\\|")

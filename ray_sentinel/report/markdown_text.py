"""Text from outside in Markdown: exceptions, file names, log lines, names of ranks and hosts.

It is shown unchanged, and is never a heading, a link, a picture, HTML or a cell of its own. What
Markdown (CommonMark with GitHub's tables, strikethrough, autolinks and formulas) would take for
markup gets a backslash, and nothing else, so that a report can be read as plain text too:
``all_reduce (c10d.py:99)`` stays unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ray_sentinel import regex as re
from ray_sentinel.text import one_line

_ACTIVE = re.compile(
    r"[\\`*\[\]<|~$#]"
    r"|_+"
    r"|&(?=\#?\w{1,32};)"  # entities
    r"|:(?=//)|(?<=\bwww)\.",  # addresses that become links by themselves
    re.IGNORECASE,
)
_AT_START = re.compile(r"(?P<sign>>|=|[-+](?=[\s-]|$))|(?P<number>\d{1,9})(?P<dot>[.)])(?=\s|$)")
"""What begins a quote, an underlined heading, a rule or a list."""


class Marked(str):
    """Markdown that is known to be valid: it is not escaped again."""

    __slots__ = ()


def escaped(text: str) -> Marked:
    """One line of text from outside, for any place in Markdown.

    >>> escaped("rank_0: [x](y) | `z` __main__")
    'rank_0: \\\\[x\\\\](y) \\\\| \\\\`z\\\\` \\\\_\\\\_main\\\\_\\\\_'
    """
    safe = cell(text)
    begun = None if safe is text else _AT_START.match(safe)
    return Marked(_begun(begun) + safe[begun.end() :]) if begun else safe


def _begun(match: re.Match[str]) -> str:
    return f"\\{match['sign']}" if match["sign"] else f"{match['number']}\\{match['dot']}"


def cell(text: str) -> Marked:
    """``escaped`` for text within a line that has begun, such as a table's."""
    if isinstance(text, Marked):
        return text
    return Marked(_ACTIVE.sub(_escape, one_line(text)))


def _escape(match: re.Match[str]) -> str:
    if match[0] == "_":
        start, end = match.span()
        before, after = match.string[max(0, start - 1) : start], match.string[end : end + 1]
        if before.isalnum() and after.isalnum():
            return "_"  # within a word it is no emphasis
    return "".join(f"\\{sign}" for sign in match[0])


def code(text: str) -> Marked:
    """The text as code, also in a table: there a ``|`` ends a cell even within code, so text with
    one is not set as code."""
    line = one_line(text)
    if not line or "|" in line:
        return escaped(line)
    fence = "`" * (_longest_run(line) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return Marked(f"{fence}{pad}{line}{pad}{fence}")


def block(lines: Iterable[str]) -> list[str]:
    """Unchanged lines as a block of code that none of them can end."""
    shown = list(lines)
    fence = "`" * max(3, max(map(_longest_run, shown), default=0) + 1)
    return [fence, *shown, fence]


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table; what would break out of a cell is escaped."""
    lines = ["| " + " | ".join(map(cell, columns)) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(map(cell, row)) + " |" for row in rows]
    return lines

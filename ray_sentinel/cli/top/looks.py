"""How a state looks in the terminal: a sign for terminals without colour, and a colour."""

from __future__ import annotations

import os

from rich.cells import cell_len
from rich.style import Style
from rich.text import Span, Text

from ray_sentinel.cli.status_view import COLOURS
from ray_sentinel.text import one_line

SIGNS = {
    "running": "■",
    "waiting": "□",
    "idle": "·",
    "starting": "▫",
    "silent": "?",
    "exited": "x",
    "stopped": "X",
    "gil-held": "G",
    "blocked": "D",
}
CLAUSE = 16
"""Most cells that a line gives up in order to end at a comma or another mark."""
_CELL = {**COLOURS, "waiting": "cyan", "idle": "bright_black"}
ACCUSED = "bold white on red"


def sign(state: str) -> str:
    """One character for a process in this state."""
    return SIGNS.get(state, "~")


def cell_style(state: str, *, accused: bool = False) -> str:
    """The style of its cell: one that an open incident names stands out."""
    return ACCUSED if accused else _CELL.get(state, "yellow")


def plain(text: str, style: str = "", limit: int = 400) -> Text:
    """Text from outside on one line: what looks like markup or a control character is shown."""
    return Text(one_line(text, limit), style=style)


def shortened(text: Text, room: int) -> Text:
    """The text in at most ``room`` cells: of a longer one whole words, then "…". A number stays
    with the word before or after it.

    >>> shortened(Text("step 1204 · 0.83 s a step"), 18).plain
    'step 1204…'
    """
    if text.cell_len <= room:
        return text
    words, fits = text.plain, 0
    while fits < len(words) and cell_len(words[: fits + 1]) < room:
        fits += 1
    ends = [at for at in range(fits, fits // 2, -1) if _ends_a_phrase(words, at)]
    clauses = (at for at in ends if words[at - 1] in ",;:·" and fits - at < CLAUSE)
    cut = next(clauses, ends[0] if ends else 0)
    if not cut:
        text = text.copy()
        text.truncate(max(room, 0), overflow="ellipsis")
        return text
    end = len(words[:cut].rstrip(" ,;:·("))
    return text[:end].append("…")


def _ends_a_phrase(words: str, at: int) -> bool:
    """Whether what stands before place ``at`` can be read without the rest."""
    if words[at] != " " or not words[:at].strip():
        return False
    before, after = words[at - 1], words[at + 1 : at + 2]
    return before in ",;:·" or not (before.isdigit() or after.isdigit())


def age(seconds: float | None) -> str:
    """ "0.4 s", "14 s", "12 min", "3 h"; a dash where it is not known."""
    if seconds is None:
        return "-"
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.0f} h"


def bar(share: float, width: int = 10) -> str:
    """A share of 0 to 1 as a bar."""
    full = round(min(max(share, 0.0), 1.0) * width)
    return "█" * full + "░" * (width - full)


def for_terminal(text: Text) -> Text:
    """As it is, or without colour where ``NO_COLOR`` is set: what stood on a colour is reversed.
    Textual alone would make greys of colours, and so the most urgent, in red, the least seen."""
    if not os.environ.get("NO_COLOR"):
        return text
    bare = text.copy()
    bare.style = _without_colour(text.style)
    bare.spans = [Span(start, end, _without_colour(style)) for start, end, style in text.spans]
    return bare


def _without_colour(style: str | Style) -> Style:
    parsed = Style.parse(style) if isinstance(style, str) else style
    return parsed.without_color + Style(reverse=True if parsed.bgcolor else None)

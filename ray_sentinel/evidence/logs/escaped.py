r"""Text of several lines inside one: structured loggers write ``\n`` where a line ended.

``{"severity": "ERROR", "message": "Traceback (most recent call last):\n  File \"a.py\", ..."}``, as
Google Cloud, Ray's JSON encoding and many others print it.
"""

from __future__ import annotations

from ray_sentinel.evidence.logs.lines import Origin, ScannedLine

_BREAK = "\\n"
_LEAST = 2
"""A traceback has a frame and an exception at least."""
_SOON = 8
"""So near after the text that is looked for the first escaped line end must stand."""


def escaped_lines(text: str, head: str, origin: Origin) -> list[ScannedLine]:
    """The lines of the value that begins with ``head``; empty where none is escaped in ``text``."""
    start = text.find(head)
    if start < 0 or _BREAK not in text[start + len(head) : start + len(head) + _SOON]:
        return []
    value = text[start : _end(text, start)]
    if value.count(_BREAK) < _LEAST:
        return []
    value = value.replace("\\\\n", _BREAK)  # an object within an object
    return [
        ScannedLine(part.replace('\\"', '"').replace("\\t", "\t").rstrip("\\"), origin)
        for part in value.split(_BREAK)
    ]


def _end(text: str, start: int) -> int:
    """Where the quoted value ends: at the first quote that is not escaped."""
    at = text.find('"', start)
    while at > 0 and text[at - 1] == "\\":
        at = text.find('"', at + 1)
    return at if at >= 0 else len(text)

"""One line, of bounded length, of what a program or Ray reported about an end."""

from __future__ import annotations

from ray_sentinel.text import clean

MOST_DETAIL = 300
"""Most characters of a detail; the rest is cut off."""


def raised_at(traceback: str) -> str:
    """The innermost place of a traceback that lacks its last line, the exception, which Ray does
    not keep.

    >>> raised_at('  File "rl.py", line 7, in loop\\n    raise ValueError(step)\\n')
    'raise ValueError(step) (File "rl.py", line 7, in loop)'
    """
    lines = [line.strip() for line in traceback.splitlines() if line.strip(" ^~\t")]
    places = [at for at, line in enumerate(lines) if line.startswith("File ")]
    if not places:
        return first_line(traceback)
    code = " ".join(lines[places[-1] + 1 : places[-1] + 2])
    place = lines[places[-1]]
    return cut_line(f"{code} ({place})" if code else place)


def last_line(text: str) -> str:
    """The last line that is not the address of a frame.

    >>> last_line("Traceback (most recent call last):\\n  File 'a'\\nValueError: no model\\n")
    'ValueError: no model'
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return cut_line(lines[-1]) if lines else ""


def first_line(text: str) -> str:
    """The first line that is not empty."""
    return cut_line(next((line.strip() for line in text.splitlines() if line.strip()), ""))


def cut_line(text: str) -> str:
    """The text without control characters, cut off if long."""
    return clean(text[:MOST_DETAIL])[:MOST_DETAIL]

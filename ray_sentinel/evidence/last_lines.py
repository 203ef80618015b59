"""What the last lines of a rank's output say about its end: the exception, or the crash."""

from __future__ import annotations

from collections.abc import Sequence

from ray_sentinel import regex as re
from ray_sentinel.evidence.logs.lines.lines import ScannedLine, parse_line
from ray_sentinel.evidence.logs.lines.tracebacks import (
    HEADS,
    Raised,
    logged_exception,
    read_traceback,
)

MOST_TELLING = 300
"""Most characters of the telling line; the rest of a longer one is cut off."""
_MOST_LINE = 4000
_FATAL = re.compile(
    r"\bwhat\(\): |^Fatal Python error: |^(?:terminate called|Segmentation fault|Bus error)"
    r"|^(?:Aborted|Killed|Illegal instruction|Floating point exception)\b"
    r"|\*\*\* SIG[A-Z]+|\b(?:CUDA|NCCL|HIP) (?:error|failure)\b|: Assertion `|^panic: "
    r"|\bout of memory\b|\b(?:FATAL|CRITICAL)\b"
)
_CONSEQUENCE = 80
"""Number of lines after a traceback within which what native code says is taken for its
consequence."""


def telling_line(texts: Sequence[str]) -> str:
    """The line that says what ended the process; empty if none does.

    >>> telling_line(["step 7", "Traceback (most recent call last):",
    ...     '  File "train.py", line 3, in <module>', "ValueError: no such batch"])
    'ValueError: no such batch'
    """
    lines = [parse_line(text[:_MOST_LINE]) for text in texts]
    raised_at, raised = _last_raised(lines)
    fatal_at = max((at for at, line in enumerate(lines) if _FATAL.search(line.text)), default=-1)
    if raised is not None and fatal_at - raised_at <= _CONSEQUENCE:
        return _bounded(raised.text)
    if fatal_at >= 0:
        return _bounded(_first_fatal(lines, fatal_at))
    said = (line.text for line in reversed(lines) if logged_exception(line.text))
    return _bounded(next(said, ""))


def _last_raised(lines: Sequence[ScannedLine]) -> tuple[int, Raised | None]:
    """The last exception that a traceback tells, and the last of the traceback's lines."""
    last: tuple[int, Raised | None] = (-1, None)
    at = 0
    while at < len(lines):
        block = None
        if any(head in lines[at].text for head in HEADS):
            block = read_traceback(lines, at)
        if block is None or not block.raised:
            at += 1
            continue
        at = max(block.lines) + 1
        last = at - 1, block.raised[-1]
    return last


def _first_fatal(lines: Sequence[ScannedLine], last: int) -> str:
    """The line of a crash's consecutive lines that gives the reason, if one does; otherwise the
    first."""
    near = [line.text for line in lines[max(0, last - _CONSEQUENCE) : last + 1]]
    fatal = [text for text in near if _FATAL.search(text)]
    return next((text for text in fatal if "what():" in text), fatal[0])


def _bounded(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= MOST_TELLING else flat[: MOST_TELLING - 1] + "…"

"""Ray's errors in a line: they carry whole tracebacks of other processes."""

from __future__ import annotations

MOST_CHARACTERS = 300


def last_line(error: BaseException) -> str:
    """The line of a Ray error that says most, the last of its traceback; its kind where it is
    without a word.

    >>> last_line(RuntimeError("Traceback ...\\nValueError: no\\n")), last_line(OSError())
    ('ValueError: no', 'OSError')
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:MOST_CHARACTERS] if lines else type(error).__name__

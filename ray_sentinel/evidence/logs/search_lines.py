"""Which lines of a piece of a log hold a word, found by ``bytes.find`` (about 2 GB/s a word)."""

from __future__ import annotations

SWIFT: tuple[bytes, ...] = (
    b"traceback (most",
    b"error: ",
    b"out of memory",
    b"watchdog caught",
    b"no space left",
    b"nvrm: xid",
    b"exitcode",
    b"heartbeat",
    b"cancelled at",
    b"unexpectedly",
    b"fatal",
    b"killed",
)
"""What is still looked for in the middle of very large files."""


def lines_with(
    lower: bytes, words: tuple[bytes, ...], limit: int, most: int
) -> list[tuple[int, int]]:
    """(line start, position of a word) of the lines that hold one of ``words``, in order.

    ``lower`` is in lower case; only lines that begin before ``limit`` count. A word that stands on
    more than ``most`` lines is chatter: only its first and last ones count.
    """
    found: dict[int, int] = {}
    for word in words:
        at, left = lower.find(word, 0, limit), most
        while at >= 0 and left:
            found.setdefault(lower.rfind(b"\n", 0, at) + 1, at)
            end = lower.find(b"\n", at)
            at = lower.find(word, end, limit) if end >= 0 else -1
            left -= 1
        if at >= 0:
            _last_lines(lower, word, at, limit, most, found)
    return sorted(found.items())


def _last_lines(
    lower: bytes, word: bytes, begin: int, limit: int, most: int, found: dict[int, int]
) -> None:
    at, left = lower.rfind(word, begin, limit), most
    while at >= 0 and left:
        start = lower.rfind(b"\n", 0, at) + 1
        found.setdefault(start, at)
        at = lower.rfind(word, begin, max(begin, start))
        left -= 1

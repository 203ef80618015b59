"""Opens plain and compressed logs and yields them in chunks of whole lines.

A line longer than ``LONGEST`` is cut: its middle is left out, so that a line of 100 MB costs no
more memory than a short one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Protocol

from ray_sentinel import regex as re
from ray_sentinel.logs.unpacking import READ_ERRORS, open_packed

__all__ = [
    "CHUNK",
    "LONGEST",
    "READ_ERRORS",
    "compression",
    "count_lines",
    "is_binary",
    "line_start",
    "open_log",
    "read_chunks",
]

CHUNK = 1 << 20
"""Bytes of one read."""
LONGEST = 1 << 20
"""Most bytes of a line."""
_MAGIC = (
    (b"\x1f\x8b", ".gz"),
    (b"\xfd7zXZ\x00", ".xz"),
    (b"BZh", ".bz2"),
    (b"\x28\xb5\x2f\xfd", ".zst"),
)
_TEXT = bytes({7, 8, 9, 10, 12, 13, 27} | set(range(0x20, 0x7F)) | set(range(0x80, 0x100)))


class Readable(Protocol):
    """A source of chunks."""

    def read(self, size: int, /) -> bytes:
        """At most ``size`` bytes."""

    def seek(self, at: int, /) -> Any:
        """Continue at ``at``."""


def compression(path: Path) -> str:
    """``.gz``, ``.xz``, ``.bz2``, ``.zst`` by the file's first bytes, or empty."""
    with path.open("rb") as file:
        front = file.read(8)
    return next((suffix for magic, suffix in _MAGIC if front.startswith(magic)), "")


_ZEROS = re.compile(rb"\x00{64,}")


def is_binary(front: bytes) -> bool:
    """Whether the first bytes of a file are not text (UTF-16 counts as binary). A block of zero
    bytes amid text is what a machine that crashed, or a writer on NFS, leaves."""
    part = _ZEROS.sub(b"", front[:4096])
    return len(part.translate(None, _TEXT)) * 20 > len(part)


def open_log(path: Path, packed: str) -> IO[bytes]:
    """The file's plain bytes. Raises OSError, and InputError for zstd if nothing can decompress
    it."""
    if packed:
        return open_packed(path, packed)
    return path.open("rb", buffering=0)


def read_chunks(
    file: Readable, start: int = 0, end: int | None = None
) -> Iterator[tuple[int, bytes]]:
    """(offset, bytes of whole lines) from ``start`` to ``end``.

    ``start`` must be the first byte of a line. The last chunk may end within a line.
    """
    offset, rest = start, b""
    position = start
    while True:
        want = CHUNK if end is None else min(CHUNK, end - position)
        data = file.read(want) if want > 0 else b""
        position += len(data)
        if not data:
            if rest:
                yield offset, rest
            return
        block = rest + data if rest else data
        cut = max(block.rfind(b"\n"), block.rfind(b"\r")) + 1
        if cut == 0:
            if len(block) <= LONGEST:
                rest = block
                continue
            # No line end in sight: look at the front, drop the middle.
            yield offset, block[:LONGEST] + b"\n"
            offset, rest = _skip_line(file, position, end)
            position = offset
            if offset < 0:
                return
            continue
        yield offset, block[:cut]
        offset += cut
        rest = block[cut:]


def _skip_line(file: Readable, position: int, end: int | None) -> tuple[int, bytes]:
    """Move to the end of an endless line; keep what follows it. (-1, b"") at the file's end."""
    tail = b""
    while True:
        want = CHUNK if end is None else min(CHUNK, end - position)
        data = file.read(want) if want > 0 else b""
        if not data:
            return (position - len(tail), tail) if tail else (-1, b"")
        position += len(data)
        cut = data.find(b"\n")
        if cut >= 0:
            file.seek(position - len(data) + cut + 1)
            return position - len(data) + cut + 1, b""
        tail = b""


def line_start(file: IO[bytes], at: int) -> int:
    """The first start of a line at or after ``at`` (0 is one); ``at`` itself if no line ends
    nearby."""
    if at <= 0:
        return 0
    file.seek(at - 1)
    window = file.read(LONGEST)
    cut = window.find(b"\n")
    return at + cut if cut >= 0 else at


def count_lines(file: Readable, end: int) -> int:
    """The number (from 1) of the line that begins at ``end``."""
    number, position = 1, 0
    while position < end:
        data = file.read(min(CHUNK, end - position))
        if not data:
            break
        number += data.count(b"\n")
        position += len(data)
    return number

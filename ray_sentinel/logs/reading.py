"""Opens plain and compressed logs and yields them in chunks of whole lines.

A line longer than ``LONGEST`` is cut: its middle is left out, so that a line of 100 MB costs no
more memory than a short one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Protocol

from ray_sentinel import regex as re
from ray_sentinel.logs.unpacking import open_packed

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


def read_chunks(file: Readable, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """(offset, bytes of whole lines) from ``start`` on.

    ``start`` must be the first byte of a line. The last chunk may end within a line.
    """
    offset, rest = start, b""
    while data := file.read(CHUNK):
        block = rest + data
        cut = max(block.rfind(b"\n"), block.rfind(b"\r")) + 1
        if cut:
            yield offset, block[:cut]
            offset, rest = offset + cut, block[cut:]
        elif len(block) <= LONGEST:
            rest = block
        else:
            # No line end in sight: look at the front, drop the middle.
            yield offset, block[:LONGEST] + b"\n"
            following = _skip_line(file, offset + len(block))
            if following is None:
                return
            offset, rest = following, b""
    if rest:
        yield offset, rest


def _skip_line(file: Readable, position: int) -> int | None:
    """Move behind the end of an endless line, which goes on at ``position``. Returns that place;
    None at the file's end."""
    while data := file.read(CHUNK):
        cut = data.find(b"\n") + 1
        if cut:
            file.seek(position + cut)
            return position + cut
        position += len(data)
    return None


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

"""Decompresses logs within limits: a file of 1 MB may decompress to 100 GB.

Memory: each format is decompressed in parts, with a window of at most ``WINDOW`` bytes. Time: no
more than ``LEAST`` bytes, or ``RATIO`` times the file's own, are decompressed; logs never compress
nearly as well, and what is read until then is used.
"""

from __future__ import annotations

import bz2
import gzip
import importlib
import io
import lzma
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from ray_sentinel.errors import InputError

LEAST = 512 << 20
RATIO = 200
WINDOW = 128 << 20
"""Most bytes of memory for unpacking, which is ``zstd``'s own limit, too; ``xz -9`` needs 64
MiB."""
ENDLESS = "it unpacks to more than"
"""How the problem of a file that unpacks to too much begins."""
READ_ERRORS = (OSError, EOFError, lzma.LZMAError, zlib.error)
_PIECE = 1 << 16
_ZSTD = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"


def open_packed(path: Path, packed: str) -> IO[bytes]:
    """The plain bytes of a file compressed as ``packed``: ".gz", ".xz", ".bz2", ".zst".

    Reading raises one of ``READ_ERRORS`` for a truncated or broken file, and for one that
    decompresses to too much. Raises OSError, and InputError for zstd if nothing can decompress it.
    """
    size = path.stat().st_size
    if packed == ".zst":
        zstd = _zstd(path)
        raw = _Unpacking(zstd.open(path, "rb"), size, (zstd.ZstdError,))
    else:
        openers: dict[str, Callable[[Path], Any]] = {
            ".gz": gzip.open,
            ".xz": _Xz,
            ".bz2": bz2.open,
        }
        raw = _Unpacking(openers[packed](path), size)
    return io.BufferedReader(raw, _PIECE)


class _Unpacking(io.RawIOBase):
    """A file being unpacked, up to a limit; ``size`` is that of the packed one. Going back starts
    from the beginning: a frame has no index. ``broken`` is what the library raises for damage,
    where that is no OSError."""

    def __init__(self, file: Any, size: int, broken: tuple[type[Exception], ...] = ()) -> None:
        self._file, self._size, self._broken = file, size, broken
        self._most = max(LEAST, RATIO * size)
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Continue at ``offset``; never beyond the limit."""
        if whence != io.SEEK_SET:
            raise OSError("only positions from the front are known in a packed file")
        if offset < self._at:
            self._at = self._file.seek(0)
        end = min(offset, self._most)
        while self._at < end and self._read(min(1 << 20, end - self._at)):
            pass
        return self._at

    def _read(self, size: int) -> bytes:
        left = self._most - self._at
        if left <= 0:
            raise OSError(
                f"{ENDLESS} {self._most / 1e6:.0f} MB, from {self._size / 1e6:.3g} MB: "
                "what follows is not read"
            )
        try:
            data = bytes(self._file.read1(min(size, left)))
        except self._broken as error:
            raise OSError(f"broken data: {error}") from None
        self._at += len(data)
        return data

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        self._file.close()
        super().close()


def _zstd(path: Path) -> Any:
    """The standard library's zstd from Python 3.14 on, else its backport; both refuse windows above
    128 MiB."""
    try:
        return importlib.import_module(_ZSTD)
    except ImportError:
        raise InputError(
            f"{path}: is compressed with zstd; pip install {_ZSTD}, or unpack it first (zstd -d)"
        ) from None


class _Xz:
    """The streams of an ``.xz`` file, one after another; ``lzma.open`` knows no limit of memory."""

    def __init__(self, path: Path) -> None:
        self._source = path.open("rb")
        self._stream: lzma.LZMADecompressor | None = None

    def read1(self, size: int) -> bytes:
        """At most ``size`` bytes; none at the end."""
        while True:
            stream, fresh = self._stream, b""
            if stream is None or stream.eof:
                fresh = (stream.unused_data if stream else b"") or self._source.read(_PIECE)
                while fresh and not (fresh := fresh.lstrip(b"\0")):  # padding between streams
                    fresh = self._source.read(_PIECE)
                if not fresh:
                    return b""
                self._stream = stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=WINDOW)
            elif stream.needs_input and not (fresh := self._source.read(_PIECE)):
                raise EOFError("the file ends within a packed stream")
            if data := stream.decompress(fresh, size):
                return data

    def seek(self, at: int) -> int:
        """Begin again: ``at`` is 0."""
        self._stream = None
        return self._source.seek(at)

    def close(self) -> None:
        """As of a file."""
        self._source.close()

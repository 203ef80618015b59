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
    openers: dict[str, Callable[[Path], Any]] = {
        ".gz": gzip.open,
        ".xz": _open_xz,
        ".bz2": bz2.open,
        ".zst": _open_zst,
    }
    size = path.stat().st_size
    return _Limited(openers[packed](path), size)  # type: ignore[return-value]


class _Limited:
    """A file being unpacked, up to a limit; as much of ``IO[bytes]`` as readers of logs need."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._size = file, size
        self._most = max(LEAST, RATIO * size)
        self._at = 0

    def read(self, size: int) -> bytes:
        """As of a file."""
        return self._counted(self._file.read(self._allowed(size)))

    def read1(self, size: int) -> bytes:
        """As of a buffered file."""
        return self._counted(self._file.read1(self._allowed(size)))  # type: ignore[attr-defined]

    def seek(self, at: int) -> int:
        """Continue at ``at``, counted from the front; never beyond the limit."""
        self._at = self._file.seek(min(at, self._most))
        return self._at

    def close(self) -> None:
        """As of a file."""
        self._file.close()

    def __enter__(self) -> _Limited:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _allowed(self, size: int) -> int:
        left = self._most - self._at
        if left <= 0:
            raise OSError(
                f"{ENDLESS} {self._most / 1e6:.0f} MB, from {self._size / 1e6:.3g} MB: "
                "what follows is not read"
            )
        return min(size, left) if size >= 0 else left

    def _counted(self, data: bytes) -> bytes:
        self._at += len(data)
        return data


class _Unpacking(io.RawIOBase):
    """A file being unpacked. Going back starts from the beginning: a frame has no index. ``broken``
    is what the library raises for damage, where that is no OSError."""

    def __init__(
        self, opener: Callable[[], IO[bytes]], broken: tuple[type[Exception], ...] = ()
    ) -> None:
        self._opener, self._broken = opener, broken
        self._file = opener()
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._read(len(buffer))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_SET:
            raise OSError("only positions from the front are known in a packed file")
        if offset < self._at:
            self._file.close()
            self._file, self._at = self._opener(), 0
        while self._at < offset and (data := self._read(min(1 << 20, offset - self._at))):
            self._at += len(data)
        return self._at

    def _read(self, size: int) -> bytes:
        try:
            return self._file.read(size)
        except self._broken as error:
            raise OSError(f"broken data: {error}") from None

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        self._file.close()
        super().close()


def _open_zst(path: Path) -> IO[bytes]:
    """The standard library's from Python 3.14 on, else its backport; both refuse windows above
    128 MiB."""
    try:
        zstd = importlib.import_module(_ZSTD)
    except ImportError:
        raise InputError(
            f"{path}: is compressed with zstd; pip install {_ZSTD}, or unpack it first (zstd -d)"
        ) from None
    return io.BufferedReader(_Unpacking(lambda: zstd.open(path, "rb"), (zstd.ZstdError,)), _PIECE)


def _open_xz(path: Path) -> IO[bytes]:
    return io.BufferedReader(_Unpacking(lambda: _Xz(path)), _PIECE)  # type: ignore[arg-type, return-value]


class _Xz:
    """The streams of an ``.xz`` file, one after another; ``lzma.open`` knows no limit of memory."""

    def __init__(self, path: Path) -> None:
        self._source = path.open("rb")
        self._stream: lzma.LZMADecompressor | None = None

    def read(self, size: int) -> bytes:
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

    def close(self) -> None:
        """As of a file."""
        self._source.close()

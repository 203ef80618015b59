"""Zstandard files as plain bytes, where this Python can unpack them.

Python 3.14 has ``compression.zstd``; before, the package ``zstandard`` does it.
"""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from ray_sentinel.errors import InputError


class Unpacking(io.RawIOBase):
    """A file being unpacked. Going back begins anew: a frame has no index."""

    def __init__(self, opener: Callable[[], IO[bytes]]) -> None:
        self._opener = opener
        self._file = opener()
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_SET:
            raise OSError("only positions from the front are known in a packed file")
        if offset < self._at:
            self._file.close()
            self._file, self._at = self._opener(), 0
        while self._at < offset and (data := self._file.read(min(1 << 20, offset - self._at))):
            self._at += len(data)
        return self._at

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        self._file.close()
        super().close()


def open_zst(path: Path) -> IO[bytes]:
    """The plain bytes of ``path``. Raises InputError, with the remedy, where nothing can unpack it,
    and OSError for a torn or broken file when it is read."""
    return io.BufferedReader(Unpacking(_opener(path)), 1 << 16)


def _opener(path: Path) -> Callable[[], IO[bytes]]:
    native = _module("compression.zstd")
    if native is not None:
        return lambda: native.open(path, "rb")
    package = _module("zstandard")
    if package is not None:
        return lambda: _Reader(path, package)  # type: ignore[return-value]
    raise InputError(
        f"{path}: is compressed with zstd; pip install zstandard, or unpack it first (zstd -d)"
    )


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


class _Reader:
    """``zstandard``'s stream over all frames; its error is no OSError."""

    def __init__(self, path: Path, package: Any) -> None:
        self._error = package.ZstdError
        self._source = path.open("rb")
        self._stream = package.ZstdDecompressor().stream_reader(
            self._source, read_across_frames=True
        )

    def read(self, size: int) -> bytes:
        try:
            return bytes(self._stream.read(size))
        except self._error as error:
            raise OSError(f"broken zstd data: {error}") from None

    def close(self) -> None:
        self._stream.close()
        self._source.close()

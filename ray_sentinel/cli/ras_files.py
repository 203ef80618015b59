"""Outputs of the RAS service on disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from ray_sentinel.cli.named_paths import files_below, is_folder, regular
from ray_sentinel.errors import InputError

MAX_BYTES = 256 << 20
"""Most bytes that are read of one file; what comes after them is ignored."""
_PIECE = 64 << 10
"""Bytes of a file that are looked at before all of it is kept."""


def load(paths: Sequence[str]) -> tuple[dict[str, bytes], list[str]]:
    """(the files' bytes by name, in the order in which they are given, of folders all by name; what
    was named and cannot be read, with the reason).

    Raises InputError if there is no file at all that can be read.
    """
    found: dict[str, bytes] = {}
    failed: list[str] = []
    for path, named in _files(paths, failed):
        try:
            regular(path)
            with path.open("rb") as file:
                found[str(path)] = content(file)
        except InputError as error:
            if named:
                failed.append(f"{path}: {error}")
        except OSError as error:
            failed.append(f"{path}: cannot be read: {error.strerror or error}")
    if not found:
        raise InputError("; ".join(failed[:4]) or f"no files in {', '.join(paths)}")
    return found, failed


def content(file: IO[bytes]) -> bytes:
    """The bytes of a file, at most ``MAX_BYTES``, without the zero bytes with which it begins: a
    crash leaves such a hole, and it may be the whole file. Of that a single zero byte is left."""
    piece, left = file.read(_PIECE), MAX_BYTES
    hole = bool(piece)
    while piece and not piece.strip(b"\0") and (left := left - len(piece)) > 0:
        piece = file.read(min(_PIECE, left))
    if not piece or left <= 0:
        return b"\0" if hole else b""
    return piece + file.read(left - len(piece))


def _files(paths: Sequence[str], failed: list[str]) -> Iterator[tuple[Path, bool]]:
    """Each file, and whether it was named itself."""
    seen: set[Path] = set()
    for text in paths:
        path = Path(text)
        try:
            folder = is_folder(text)
        except InputError as error:
            failed.append(str(error))
            continue
        if folder:
            yield from ((file, False) for file in files_below(path))
        elif path.resolve() not in seen:
            seen.add(path.resolve())
            yield path, True

"""Outputs of the RAS service on disk, and the table that joins processes to ranks."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from ray_sentinel.cli.named_paths import is_folder, regular
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
            yield from ((file, False) for file in _inside(path))
        elif path.resolve() not in seen:
            seen.add(path.resolve())
            yield path, True


def _inside(top: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(top):
        folders.sort()
        yield from (Path(folder) / name for name in sorted(names) if not name.startswith("."))


def rank_table(path: str) -> dict[tuple[str, int], int]:
    """(host, pid) → world rank, from ``ray-sentinel status --json``, an incident's
    ``incident.json``, or a list of objects with ``host``, ``pid`` and ``rank``.

    Raises InputError if the file cannot be read or has no such table.
    """
    try:
        with open(path, "rb") as file:
            data: Any = json.loads(file.read(MAX_BYTES))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: is not JSON: {error}") from None
    table: dict[tuple[str, int], int] = {}
    for row in _rows(data):
        host, pid, rank = row.get("host"), row.get("pid"), row.get("rank")
        if isinstance(host, str) and isinstance(pid, int) and str(rank).isdecimal():
            table[host, pid] = int(str(rank))
    if not table:
        raise InputError(
            f"{path}: no ranks in it: the output of `ray-sentinel status --json`, or a list of "
            '{"host", "pid", "rank"}, is meant'
        )
    return table


def _rows(data: Any) -> Iterator[dict[str, Any]]:
    if isinstance(data, list):
        yield from (row for row in data if isinstance(row, dict))
    if not isinstance(data, dict):
        return
    processes = data.get("processes")
    if isinstance(processes, dict):
        for rank, process in processes.items():
            if isinstance(process, dict):
                yield {**process, "rank": rank}
    for key in ("jobs", "ranks"):
        for item in data[key] if isinstance(data.get(key), list) else ():
            if isinstance(item, dict):
                yield from _rows(item) if key == "jobs" else (item,)

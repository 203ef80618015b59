"""Distributes many large files over worker processes, one per core.

A helper is this module run as a program: its task comes on stdin, the facts of its files go to
stdout, both as MessagePack. It dies with its parent, and if one fails its files are read by the
parent.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import msgspec

from ray_sentinel import process
from ray_sentinel.evidence.logs.errors.catalogue import Catalogue
from ray_sentinel.logs.catalogue import load_catalogue
from ray_sentinel.logs.find import FoundLog
from ray_sentinel.logs.read_file import FileAnswer, Reach, read_file

WORTH_IT = 96 << 20
"""Bytes from which a further process is worthwhile."""
MOST = 4
"""Most processes that share the work: reading is soon limited by the disk."""
_DEADLINE = 3600.0
_MAX_ANSWER = 256 << 20


class Piece(msgspec.Struct):
    """One file of a task: its number, path and reach."""

    index: int
    item: FoundLog
    reach: Reach | None


class ReadTask(msgspec.Struct):
    """What a helper has to read."""

    pieces: list[Piece]
    catalogues: list[str]


def helpers_for(total: int, files: int) -> int:
    """How many additional processes are worthwhile for ``total`` bytes in ``files`` files on this
    machine."""
    if total < WORTH_IT or files < 2:
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    return max(0, min(MOST, cores, files) - 1)


def read_shared(
    pieces: Sequence[Piece],
    catalogue: Catalogue,
    catalogues: Sequence[Path],
    helpers: int,
    advance: Callable[[Piece, int], None],
) -> list[FileAnswer]:
    """The answers for ``pieces``, in order. ``advance`` is called with the number of bytes read."""
    groups = _balanced(pieces, helpers + 1)
    answers: dict[int, FileAnswer] = {}
    with ThreadPoolExecutor(max(1, helpers), thread_name_prefix="log-helper") as pool:
        asked = [(group, pool.submit(_ask, group, catalogues)) for group in groups[1:]]
        answers.update(_read_here(groups[0], catalogue, advance))
        for group, future in asked:
            found = future.result()
            if found is None:
                answers.update(_read_here(group, catalogue, advance))
                continue
            for piece in group:
                advance(piece, piece.item.file.size)
            answers.update(found)
    return [answers[piece.index] for piece in pieces]


def _balanced(pieces: Sequence[Piece], count: int) -> list[list[Piece]]:
    """``count`` groups of about equal size, the largest files first."""
    groups: list[list[Piece]] = [[] for _ in range(count)]
    sizes = [0] * count
    for piece in sorted(pieces, key=lambda p: -p.item.file.size):
        place = sizes.index(min(sizes))
        groups[place].append(piece)
        sizes[place] += piece.item.file.size
    return groups


def _read_here(
    group: Sequence[Piece], catalogue: Catalogue, advance: Callable[[Piece, int], None]
) -> dict[int, FileAnswer]:
    return {
        piece.index: read_file(
            piece.index, piece.item, piece.reach, catalogue, partial(advance, piece)
        )
        for piece in group
    }


def _ask(group: list[Piece], catalogues: Sequence[Path]) -> list[tuple[int, FileAnswer]] | None:
    """The helper's answers; None if it failed."""
    task = ReadTask(pieces=group, catalogues=[str(path) for path in catalogues])
    done = process.run(
        process.python_module("ray_sentinel.logs.share"),
        deadline=_DEADLINE,
        max_output=_MAX_ANSWER,
        input=msgspec.msgpack.encode(task, enc_hook=_encode),
    )
    if not done.ok or done.truncated:
        return None
    try:
        return msgspec.msgpack.decode(
            done.stdout, type=list[tuple[int, FileAnswer]], dec_hook=_decode
        )
    except msgspec.DecodeError:
        return None


def _encode(value: object) -> object:
    if isinstance(value, Path):
        return os.fsencode(value)
    raise NotImplementedError(type(value))


def _decode(kind: type, value: object) -> object:
    if issubclass(kind, Path) and isinstance(value, bytes):
        return Path(os.fsdecode(value))
    raise NotImplementedError(kind)


def main() -> None:
    """A helper: read the task, answer it."""
    task = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=ReadTask, dec_hook=_decode)
    catalogue = load_catalogue(Path(path) for path in task.catalogues)
    found = _read_here(task.pieces, catalogue, lambda piece, size: None)
    sys.stdout.buffer.write(msgspec.msgpack.encode(list(found.items()), enc_hook=_encode))


if __name__ == "__main__":
    main()

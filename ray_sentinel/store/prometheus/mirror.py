"""A second data folder with the content of a first, which it does not touch.

Blocks never change once they are written, so links suffice; the write-ahead log is copied, because
opening it writes.
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from ray_sentinel.store.prometheus.tsdb import Database, inspect

TRIES = 4
"""Attempts to copy a live job's data: blocks come and go meanwhile."""


def mirror_steadily(folder: Path, target: Path) -> tuple[Database, list[str]]:
    """Create ``target``, again if blocks came or went meanwhile. Returns what is there, and what is
    missing.

    A head that has just become a block is in neither the list of blocks nor the rest of the
    write-ahead log. Raises InputError if the folder cannot be read.
    """
    for attempt in range(TRIES):
        if attempt:
            shutil.rmtree(target)
        database = inspect(folder)
        notes = mirror(database, target)
        if not database.live or _same_blocks(database, inspect(folder)):
            return database, notes
    return database, [*notes, "blocks came and went while they were copied: some may be missing"]


def _same_blocks(one: Database, other: Database) -> bool:
    return {block.path for block in one.blocks} == {block.path for block in other.blocks}


def mirror(database: Database, target: Path) -> list[str]:
    """Create ``target`` as a data folder with the same content. Returns what is missing in it.

    Blocks of a finished job are links. A live job's Prometheus may delete blocks at any moment, so
    there they are hard links, or copies on another file system.
    """
    target.mkdir(parents=True)
    problems = (_try_mirror(Path(b.path), target, live=database.live) for b in database.blocks)
    notes = [problem for problem in problems if problem]
    tail = _copy_head(Path(database.path), target) if database.wal else ""
    if tail:
        shutil.rmtree(target / "wal", ignore_errors=True)
        shutil.rmtree(target / "chunks_head", ignore_errors=True)
        notes.append(f"the newest samples (up to the last two hours) are missing: {tail}")
    elif database.live:
        notes.append("a copy of a live job's data: what was scraped after now is missing")
    return notes


def _try_mirror(source: Path, target: Path, *, live: bool) -> str:
    try:
        _mirror_block(source, target / source.name, live=live)
    except OSError as error:
        shutil.rmtree(target / source.name, ignore_errors=True)
        return f"left out, {source.name}: {error.strerror}"
    return ""


def _mirror_block(source: Path, target: Path, *, live: bool) -> None:
    (target / "chunks").mkdir(parents=True)
    for name in ("meta.json", "tombstones"):
        if (source / name).exists():
            shutil.copyfile(source / name, target / name)
    files = [source / "index", *sorted((source / "chunks").iterdir())]
    for file in files:
        link = target / file.relative_to(source)
        if not live:
            link.symlink_to(file.resolve())
            continue
        try:
            os.link(file, link)
        except OSError as error:
            if error.errno not in {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP}:
                raise
            shutil.copyfile(file, link)


def _copy_head(source: Path, target: Path) -> str:
    """Copy the WAL and the memory-mapped head; returns why it could not be done."""
    for name in ("wal", "chunks_head"):
        if not (source / name).is_dir():
            continue
        try:
            shutil.copytree(source / name, target / name)
        except (OSError, shutil.Error) as error:
            return f"the write-ahead log cannot be copied ({error})"
    return ""

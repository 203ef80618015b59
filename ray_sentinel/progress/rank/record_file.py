"""Creates the file of a new record in the first folder that accepts it."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ray_sentinel.progress import directory, record
from ray_sentinel.progress.directory import RecordError
from ray_sentinel.progress.identity import RankIdentity
from ray_sentinel.progress.rank.own_process import (
    boot_number,
    pid_namespace,
    raylet_above,
    start_ticks,
)


class RecordFile(NamedTuple):
    """An open record; ``directory`` is a descriptor of its folder."""

    path: Path
    handle: int
    directory: int
    problems: tuple[str, ...]
    """Folders that could not hold the record, and why."""


def make(identity: RankIdentity, folders: Iterable[Path]) -> RecordFile:
    """Create this process's record in the first of ``folders`` that accepts it.

    Raises RecordError, naming each folder and what is wrong with it.
    """
    problems: list[str] = []
    for folder in folders:
        try:
            handle = directory.open_directory(folder)
        except RecordError as error:
            problems.append(str(error))
            continue
        try:
            path, file = _make_in(handle, folder, identity)
        except OSError as error:
            os.close(handle)
            problems.append(f"{folder}: {_explain(error)}")
            continue
        return RecordFile(path, file, handle, tuple(problems))
    raise RecordError(
        "no progress record could be made: "
        + "; ".join(problems)
        + ". Free some space there, or name a folder by RAY_SENTINEL_RECORD_DIR"
    )


def _explain(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return f"full (a record takes {record.SIZE} bytes)"
    return error.strerror or str(error)


def _make_in(folder: int, path: Path, identity: RankIdentity) -> tuple[Path, int]:
    pid, start = os.getpid(), start_ticks()
    name = directory.record_name(identity.job, identity.attempt, identity.rank, pid, start)
    temporary = f".{pid}-{start}-{time.monotonic_ns()}.new"
    handle = directory.create(folder, temporary, record.SIZE)
    try:
        header = record.HEADER.pack(
            record.MAGIC,
            record.VERSION,
            record.SIZE,
            pid,
            start,
            time.monotonic(),
            time.time(),
            boot_number(),
            raylet_above(os.getppid()),
            pid_namespace(),
        )
        os.pwrite(handle, header, 0)
        directory.publish(folder, temporary, name)
    except OSError:
        os.close(handle)
        os.unlink(temporary, dir_fd=folder)
        raise
    return path / name, handle

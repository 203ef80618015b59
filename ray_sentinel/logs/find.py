"""The log files below a path: a file, a job's folder, a Ray temp dir, a harvested tree."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ray_sentinel.errors import InputError, UnreachableError
from ray_sentinel.evidence.logs.records import LogFile
from ray_sentinel.logs.names import file_kind, file_origin, is_log_name

LIVE_SESSION = Path("/tmp/ray/session_latest")
_SKIPPED_FOLDERS = frozenset(
    {
        ".git",
        "__pycache__",
        "site-packages",
        "node_modules",
        "tensorboard",
        "sockets",
        "runtime_resources",
        "wal",
        "chunks_head",
        "chunks",
        "xla_dump",
        "wandb-media",
        "metrics",
    }
)
_MAX_FILES = 50_000


class FoundLog(msgspec.Struct, frozen=True):
    """A file on disk and what its name shows."""

    path: Path
    file: LogFile


def live_session(temp: Path | None = None) -> Path:
    """The folder of this machine's Ray session.

    ``temp``, or else ``RAY_TEMP_DIR``, is the value of ``ray start --temp-dir``; ``RAY_TMPDIR`` is
    the folder above Ray's own. If ``temp`` is given, only that is searched; it may also be the
    session itself.

    Raises UnreachableError with the remedy if there is none.
    """
    if temp is not None:
        return _session_in(temp.expanduser())
    base = Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray" / "session_latest"
    places = [base, LIVE_SESSION]
    if given := os.environ.get("RAY_TEMP_DIR"):
        base = Path(given) / "session_latest"
        places.insert(0, base)
    for place in places:
        if place.is_dir():
            return place
    raise UnreachableError(
        f"no Ray session on this machine ({base} is not there); give the Ray temp dir as PATH, or "
        "run this on a node of the cluster"
    )


def _session_in(temp: Path) -> Path:
    for place in (temp / "session_latest", temp):
        if (place / "logs").is_dir():
            return place
    raise UnreachableError(
        f"no Ray session in {temp} ({temp / 'session_latest'} is not there); --temp-dir is what "
        "`ray start --temp-dir` was given, /tmp/ray by default"
    )


def find_logs(root: Path) -> tuple[FoundLog, ...]:
    """The logs at or below ``root``, in the order of their names.

    Links to folders are followed only at the top (``session_latest``). Raises InputError if there
    is nothing to read.
    """
    root = root.expanduser()
    try:
        mode = root.stat().st_mode
    except OSError as error:
        raise InputError(f"{root}: cannot be read: {error.strerror}") from None
    if stat.S_ISREG(mode):
        return (_made(root, root.parent),)
    if not stat.S_ISDIR(mode):
        raise InputError(f"{root}: is neither a file nor a folder")
    found = sorted(_walk(root), key=lambda item: item.file.label)
    if not found:
        raise InputError(
            f"{root}: holds no log files; give a log, a job's folder or a Ray temp dir"
        )
    return tuple(found)


def _walk(root: Path) -> Iterator[FoundLog]:
    seen: set[tuple[int, int]] = set()
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(
            name
            for name in folders
            if name not in _SKIPPED_FOLDERS
            and not name.startswith((".", "checkpoint-", "global_step"))
        )
        for name in sorted(files):
            path = Path(folder, name)
            if not is_log_name(path):
                continue
            try:
                status = path.stat()
                maker = path.lstat().st_uid
            except OSError:
                continue  # a link that leads nowhere, or a file just rotated away
            if maker not in (0, os.geteuid(), status.st_uid):
                continue  # somebody's link to a file that we may read and they may not
            key = (status.st_dev, status.st_ino)
            if not stat.S_ISREG(status.st_mode) or status.st_size == 0 or key in seen:
                continue
            seen.add(key)
            if len(seen) > _MAX_FILES:
                raise InputError(
                    f"{root}: holds more than {_MAX_FILES} files; give a smaller part of it"
                )
            yield _made(path, root, status)


def _made(path: Path, root: Path, status: os.stat_result | None = None) -> FoundLog:
    status = status or path.stat()
    relative = path.relative_to(root)
    return FoundLog(
        path,
        LogFile(
            label=str(relative),
            kind=file_kind(relative),
            origin=file_origin(relative, relative.parts[:-1]),
            stderr=".err" in path.suffixes,
            modified=status.st_mtime,
            size=status.st_size,
        ),
    )

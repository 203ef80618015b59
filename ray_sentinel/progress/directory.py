"""Where records are, and how their files are created without risk to the training or to other
users.

``RAY_SENTINEL_RECORD_DIR`` if set, else ``/dev/shm/ray_sentinel-<uid>``, else the same name in the
temporary folder when shared memory is full or missing (a record on a disk works, but its pages are
written back, so the writer says so). Folders are 0700, files 0600, links are never followed.

A file is allocated in full before it is mapped: a store into a page of a sparse map that a full
tmpfs cannot provide kills the process by SIGBUS. It gets its name only when it is whole, and is
never truncated.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from ray_sentinel.config import safe_name
from ray_sentinel.errors import SentinelError
from ray_sentinel.progress.discovery.environment import RECORD_DIR_VARIABLE

SHARED_MEMORY = Path("/dev/shm")
SUFFIX = ".record"


class RecordError(SentinelError):
    """A record could not be made; the message says where it was tried and why it failed."""


def candidates(environ: Mapping[str, str] = os.environ, uid: int | None = None) -> Iterator[Path]:
    """The folders in which records may be, best first."""
    if named := environ.get(RECORD_DIR_VARIABLE, ""):
        yield Path(named)
        return
    name = f"ray_sentinel-{os.getuid() if uid is None else uid}"
    yield SHARED_MEMORY / name
    # Imported here: ``attach()`` waits for it, and mostly takes the first.
    import tempfile

    yield Path(tempfile.gettempdir()) / name


def record_name(job: str, attempt: int, rank: int, pid: int, start: int) -> str:
    """A readable file name; only the content counts. One process never creates two."""
    return f"{safe_name(job) or 'job'}-a{attempt}-r{rank}-{pid}-{start}{SUFFIX}"


def open_directory(path: Path) -> int:
    """The folder's descriptor; it is created with mode 0700 if missing.

    Raises RecordError if it is not a folder of our own: another user could swap files in it.
    """
    try:
        if path.parent.is_dir():
            path.mkdir(mode=0o700, exist_ok=True)
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror}") from error
    status = os.fstat(handle)
    shared = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if status.st_uid not in (0, os.geteuid()) or (shared and not status.st_mode & stat.S_ISVTX):
        os.close(handle)
        raise RecordError(f"{path}: belongs to another user, or others may write to it")
    return handle


def create(directory: int, name: str, size: int) -> int:
    """A new file of ``size`` zero bytes, all of them allocated; returns its descriptor.

    Raises OSError (ENOSPC if there is no room, EEXIST if the name is taken).
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(name, flags, 0o600, dir_fd=directory)
    try:
        _allocate(handle, size)
    except OSError:
        os.close(handle)
        os.unlink(name, dir_fd=directory)
        raise
    return handle


def _allocate(handle: int, size: int) -> None:
    try:
        os.posix_fallocate(handle, 0, size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise
        # Not every file system and C library can; writing the zeros allocates them as well.
        if os.pwrite(handle, bytes(size), 0) != size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error


def publish(directory: int, temporary: str, name: str) -> None:
    """Give a complete file its name."""
    os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)


def temporary_name(name: str, pid: int) -> str:
    """The name that process ``pid`` gives a file until it is complete and can be called
    ``name``."""
    return f".{name}.{pid}.new"


def write_whole(directory: int, name: str, data: bytes) -> None:
    """Write a file beside the records atomically.

    Raises OSError.
    """
    temporary = temporary_name(name, os.getpid())
    handle = create(directory, temporary, len(data) or 1)
    try:
        view = memoryview(data)
        offset = 0
        while offset < len(data):
            offset += os.pwrite(handle, view[offset:], offset)
        if not data:
            os.ftruncate(handle, 0)
    except OSError:
        os.unlink(temporary, dir_fd=directory)
        raise
    finally:
        os.close(handle)
    publish(directory, temporary, name)

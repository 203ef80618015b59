"""Files that a process under watch wrote, in folders that others may write to as well: ``/tmp``.

What lies there under the right name may be anybody's, and a link may lead to a file that only we
may read. So it is opened as what the process itself would have made there, or not at all:

- Symbolic links are followed only where root, we or the process's user made them, and never in the
  last part of the path.
- It must belong to the process's user, be a regular file (or a FIFO, where one is wanted) and have
  no second name: a hard link may be another user's way to a file that is not this one.
- A FIFO or a device in its place does not stop us, and no more is read than was asked for.

``RAY_SENTINEL_TRUSTED_UIDS`` (see ``trusted_path``) holds here too: NFS that maps root to nobody
gives a root's dumps another owner.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ray_sentinel.errors import InputError
from ray_sentinel.path_walk import READ_FILE, PathWalk
from ray_sentinel.trusted_path import TRUSTED_UIDS_VARIABLE, trusted_uids

_WRITE_FIFO = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class ForeignFileError(InputError):
    """A file that the process did not make: names it and says whose it is."""


def uid_of(pid: int, proc: str = "/proc") -> int:
    """The user by which a process makes files (the file-system uid), as we see users' numbers.

    Not the owner of ``/proc/<pid>``, which is root for a process that may not be dumped. Raises
    OSError if the process is not there.
    """
    return _numbers(pid, proc)["Uid"][3]


def users_of(pid: int, proc: str = "/proc") -> frozenset[int]:
    """The real, effective and saved users of a process, as we see their numbers.

    Whoever starts a program that makes itself root (``su``) is still its real user. Raises OSError
    if the process is not there.
    """
    return frozenset(_numbers(pid, proc)["Uid"][:3])


def may_read(info: os.stat_result, pid: int) -> bool:
    """Whether the permissions of a file let a process read it. Raises OSError."""
    numbers = _numbers(pid, "/proc")
    uid, groups = numbers["Uid"][3], {numbers["Gid"][3], *numbers["Groups"]}
    if uid in (0, info.st_uid):
        return True
    return bool(info.st_mode & (stat.S_IRGRP if info.st_gid in groups else stat.S_IROTH))


def _numbers(pid: int, proc: str) -> dict[str, tuple[int, ...]]:
    """Users and groups of a process: real, effective, saved and file-system ``Uid`` and ``Gid``,
    and its further ``Groups``. Raises OSError."""
    found: dict[str, tuple[int, ...]] = {}
    with open(f"{proc}/{pid}/status", encoding="utf-8", errors="replace") as file:
        for line in file:
            name, _, values = line.partition(":")
            if name in ("Uid", "Gid", "Groups"):
                found[name] = tuple(map(int, values.split()))
    if {name: len(found.get(name, ())) for name in ("Uid", "Gid")} != {"Uid": 4, "Gid": 4}:
        raise OSError(f"{proc}/{pid}/status names no user")
    return {"Groups": (), **found}


def open_evidence(path: Path, owner: int, *, root: str = "/") -> int:
    """A descriptor for reading of a regular file of user ``owner``'s.

    ``root`` is where the path begins: ``/proc/<pid>/root`` for a process in a container. Raises
    ForeignFileError for what is not the owner's, OSError if it cannot be opened.
    """
    return _Walk(owner, root).open(path, READ_FILE, stat.S_IFREG)


def open_fifo_of(path: Path, owner: int, *, root: str = "/") -> int:
    """A descriptor for writing to a FIFO of user ``owner``'s, which somebody reads.

    Raises ForeignFileError, and OSError (ENXIO where nobody reads it).
    """
    return _Walk(owner, root).open(path, _WRITE_FIFO, stat.S_IFIFO)


def open_descriptor(pid: int, number: int, owner: int) -> int:
    """A descriptor for reading of the regular file that a process of user ``owner``'s has open as
    ``number``, wherever it lies and whether its name is still there.

    The process may have been handed another user's file: that is refused as by ``open_evidence``.
    Raises ForeignFileError, and OSError if it cannot be opened.
    """
    link = Path(f"/proc/{pid}/fd/{number}")
    walk = _Walk(owner, "/")
    # Before it is opened: to open a device or a FIFO may do something.
    walk.judge(os.stat(link), link, stat.S_IFREG)
    handle = os.open(link, READ_FILE & ~os.O_NOFOLLOW | os.O_NOCTTY)
    try:
        walk.judge(os.fstat(handle), link, stat.S_IFREG)
    except ForeignFileError:
        os.close(handle)
        raise
    return handle


class _Walk(PathWalk):
    def __init__(self, owner: int, root: str) -> None:
        super().__init__(root)
        trusted = trusted_uids()
        # The files of root and our own are not the process's, if it is another user's.
        named = None if trusted is None else trusted - {0, os.geteuid()}
        self._file_owners = None if named is None else named | {owner}
        self._link_owners = None if trusted is None else trusted | {owner}
        self._owner = owner

    def judge_link(self, info: os.stat_result, shown: str) -> None:
        """Raises ForeignFileError."""
        if self._link_owners is not None and info.st_uid not in self._link_owners:
            raise ForeignFileError(
                f"{shown}: is a symbolic link of user {info.st_uid}, not of the process's user "
                f"{self._owner}, and is not followed; remove it"
            )

    def open(self, path: Path, flags: int, kind: int) -> int:
        """A descriptor of the file, which is of that kind (``stat.S_IFREG``, ...)."""
        try:
            folder, name = self.walk(path.parent / ".", to_folder=True)[0], path.name
            try:
                # Before it is opened: to open a device or a FIFO may do something.
                self.judge(os.lstat(name, dir_fd=folder), path, kind)
                handle = os.open(name, flags, dir_fd=folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None
        try:
            self.judge(os.fstat(handle), path, kind)
        except ForeignFileError:
            os.close(handle)
            raise
        return handle

    def judge(self, info: os.stat_result, path: Path, kind: int) -> None:
        """Raises ForeignFileError for what is not a file of that kind of the owner's."""
        if stat.S_ISLNK(info.st_mode):
            raise ForeignFileError(f"{path}: is a symbolic link, and is not followed; remove it")
        if stat.S_IFMT(info.st_mode) != kind:
            wanted = "pipe" if kind == stat.S_IFIFO else "regular file"
            raise ForeignFileError(f"{path}: is no {wanted}")
        if self._file_owners is None:
            return
        if info.st_uid not in self._file_owners:
            raise ForeignFileError(
                f"{path}: belongs to user {info.st_uid}, not to the process's user {self._owner}: "
                f"it is not read; remove it, or, if that user is to be trusted, set "
                f"{TRUSTED_UIDS_VARIABLE}={info.st_uid} in the environment"
            )
        if info.st_nlink > 1:
            raise ForeignFileError(
                f"{path}: has {info.st_nlink} names (hard links), so it may be another file: it is "
                "not read; remove it"
            )

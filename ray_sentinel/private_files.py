"""Folders and files that are their owner's alone, whatever the umask and the folder's default ACL.

What the monitor keeps (stacks, logs, command lines, exceptions) is not for every user of a host. A
mode that is given when a file is made bounds its ACL too, which a umask does not where the folder
has a default ACL; so modes are always given.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

FOLDER_MODE = stat.S_IRWXU
FILE_MODE = stat.S_IRUSR | stat.S_IWUSR
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing, with mode 0700. Raises OSError.

    One that is there keeps its mode: it may be the user's.
    """
    try:
        folder.mkdir(mode=FOLDER_MODE)
    except FileNotFoundError:
        make_private(folder.parent)
        make_private(folder)
    except FileExistsError:
        if not folder.is_dir():
            raise


def keep_private(folder: Path) -> None:
    """Make a folder of ours, or take the rights of others from one that is there (of an earlier
    version, say). Raises OSError if it cannot be made."""
    make_private(folder)
    tighten(folder)


def tighten(path: Path) -> None:
    """Take the rights of others from what is ours.

    What is somebody else's stays as it is, and what a link leads to: who laid it made that folder.
    So does all where the file system has no modes.
    """
    with contextlib.suppress(OSError):
        info = os.lstat(path)
        ours = info.st_uid == os.geteuid() and not stat.S_ISLNK(info.st_mode)
        if ours and info.st_mode & _OTHERS:
            os.chmod(path, stat.S_IMODE(info.st_mode) & stat.S_IRWXU)


def be_private() -> None:
    """Set this process's umask, and so its children's: where no mode is given, nobody else reads.

    For processes of ours alone: what a training command writes is not ours to hide.
    """
    os.umask(_OTHERS)


def opener(path: str, flags: int) -> int:
    """For ``open(..., opener=...)``: a file that is made has mode 0600; a link is not followed."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)


def read_private(path: Path, most: int) -> bytes:
    """A regular file's first bytes; empty if there is none, or a link, a pipe, a device."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    with open(handle, "rb") as file, contextlib.suppress(OSError):
        if stat.S_ISREG(os.fstat(handle).st_mode):
            return file.read(most)
    return b""

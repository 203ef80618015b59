"""Files in folders of anybody's, where something else may have a file's name.

To open a FIFO waits for a writer, to open a device may do something, and neither has an end.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path) -> BinaryIO:
    """The file, to be read, behind a link too. Raises OSError, also for what is no regular file."""
    _check(path, os.stat(path))
    # It may have been replaced meanwhile.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _check(path, os.fstat(handle))
    except OSError:
        os.close(handle)
        raise
    return open(handle, "rb")


def read_regular(path: Path, most: int) -> bytes:
    """The bytes of a file. Raises OSError, also for what is no regular file or has more than
    ``most`` bytes."""
    with open_regular(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"larger than {most} bytes", str(path))
    return data


def _check(path: Path, info: os.stat_result) -> None:
    if stat.S_ISDIR(info.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(info.st_mode):
        raise OSError(errno.EINVAL, "no regular file", str(path))

"""Files that others read while they are written."""

from __future__ import annotations

import os
from pathlib import Path

from ray_sentinel.private_files import FILE_MODE


def write_whole(path: Path, data: bytes, *, durable: bool = False, mode: int = FILE_MODE) -> None:
    """Write a file so that it is there whole or not at all. Raises OSError.

    ``mode`` is that of ``open``: the umask applies to it.
    With ``durable`` that holds for a host that loses its power too; it waits for the disk.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        # Left by another life of this pid, perhaps: it is not written into.
        partial.unlink(missing_ok=True)
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with open(handle, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise

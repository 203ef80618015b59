"""New whole lines of a log that is being written, which may be cut, rotated or replaced."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ray_sentinel import regex as re

FIRST_BYTES = 256 << 10
"""Of a log that is found late, only the end is read."""
MOST_BYTES = 4 << 20
"""Of one read; what is written faster than it is read is passed over, but for its end."""
_ENDS = re.compile(rb"[\r\n]+")


class LogTail:
    """Follows one file. A line ends with a newline or, as progress bars do, a carriage return."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written = 0.0
        """When it was last written to, in Unix seconds."""
        self._offset: int | None = None
        self._file = (0, 0)

    def lines(self) -> list[bytes]:
        """What is new. Raises OSError where the file cannot be read."""
        handle = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                return []
            self.written = status.st_mtime
            file = (status.st_dev, status.st_ino)
            if self._offset is None:
                self._offset = max(0, status.st_size - FIRST_BYTES)
            elif file != self._file or status.st_size < self._offset:
                self._offset = 0
            self._file = file
            self._offset = max(self._offset, status.st_size - MOST_BYTES)
            data = os.pread(handle, MOST_BYTES, self._offset)
        finally:
            os.close(handle)
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        self._offset += end
        return [line for line in _ENDS.split(data[:end]) if line]

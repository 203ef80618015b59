"""The last lines that a rank wrote to its standard error, where that is a file.

Of a process that has ended nobody can ask anything: so the file is noted while it lives. What was
there long before the end is left out, for it tells of something else.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Collection
from pathlib import Path

from ray_sentinel.progress.processes import Key

MAX_BYTES = 8192
LOOKS = 3
"""What was written since so many looks ago counts as the end; a look is about a second."""


class LastOutput:
    """Notes files look by look. ``read`` is called once a process has ended."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = str(proc)
        self._files: dict[Key, tuple[str, tuple[int, int]]] = {}
        self._sizes: dict[Key, deque[int]] = {}

    def note(self, keys: Collection[Key]) -> None:
        """Look at the files of the living; the others are kept until ``forget``."""
        for key in keys:
            link = f"{self._proc}/{key[0]}/fd/2"
            try:
                found = os.stat(link)
                if stat.S_ISREG(found.st_mode):
                    self._files[key] = (os.readlink(link), (found.st_dev, found.st_ino))
                    self._sizes.setdefault(key, deque(maxlen=LOOKS)).append(found.st_size)
            except OSError:
                continue  # it ends just now, or is another user's

    def forget(self, kept: Collection[Key]) -> None:
        """Forget all but these."""
        for key in self._files.keys() - set(kept):
            del self._files[key]
            self._sizes.pop(key, None)

    def read(self, key: Key) -> str:
        """What it wrote at the end; "" where that is not known, or not known to be its own.

        A file that several ranks write to tells nothing of one of them.
        """
        path, identity = self._files.get(key, ("", (0, 0)))
        shared = any(
            other != key and found == identity for other, (_, found) in self._files.items()
        )
        if not path or shared:
            return ""
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return ""
        with open(handle, "rb") as file:
            now = os.fstat(handle)
            if (now.st_dev, now.st_ino) != identity:
                return ""
            begin = self._sizes[key][0] if self._sizes.get(key) else 0
            file.seek(max(begin, now.st_size - MAX_BYTES))
            return file.read(MAX_BYTES).decode("utf-8", "replace")

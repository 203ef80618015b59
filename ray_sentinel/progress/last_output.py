"""The last lines that a rank wrote to its standard error, if that is a file.

A process that has ended cannot be asked, so the file is noted while it lives. Lines written long
before the end are left out, because they are about something else. The file may be on a shared file
system that hangs, which may be why the training hangs: it is read in a thread of its own, and the
agent does not wait for it.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Collection
from pathlib import Path

import msgspec

from ray_sentinel.bounded import Bounded
from ray_sentinel.masking import mask_tail
from ray_sentinel.progress.proc.proc_stat import Key

MAX_BYTES = 8192
"""Most bytes read from the end of a file."""
LOOKS = 3
"""How many of the last polls count as the end, for output that came in them; polls are about a
second apart."""
PATIENCE = 1.0
"""Seconds that a look at the files may take, also on a crowded machine."""
MOST_READS = 4
"""Most simultaneous reads; while so many hang, no more are begun."""


class OutputStream(msgspec.Struct, frozen=True):
    """What a process had open as standard output or error when that was looked at."""

    target: str
    """The target by which the kernel names it, and by which it is opened: a path, ``pipe:[123]``,
    ``/dev/pts/0``. Bytes that are not UTF-8 are surrogates."""
    identity: tuple[int, int] | None = None
    """Device and inode, for a regular file only."""
    size: int = 0
    """Bytes of a regular file."""


def stream_of(link: str, target: str) -> OutputStream:
    """The stream behind a link of ``/proc/<pid>/fd`` that has this target. Raises OSError."""
    if target.startswith("/"):
        info = os.stat(link)
        if stat.S_ISREG(info.st_mode):
            return OutputStream(target, (info.st_dev, info.st_ino), info.st_size)
    return OutputStream(target)


class LastOutput:
    """Records the files at each poll. ``read`` is called once a process has ended."""

    def __init__(self, proc: Path = Path("/proc"), *, patience: float = PATIENCE) -> None:
        self._proc = str(proc)
        self._files: dict[Key, OutputStream] = {}
        self._sizes: dict[Key, deque[int]] = {}
        self._noting: Bounded[str, dict[Key, OutputStream]] = Bounded(patience, most=1)
        self._reading: Bounded[Key, str] = Bounded(patience, most=MOST_READS)

    def note(self, keys: Collection[Key]) -> None:
        """Record the files of living processes; those of other processes are kept until
        ``forget``."""
        wanted = tuple(keys)
        found, _ = self._noting.run({"note": lambda: _seen(self._proc, wanted)} if wanted else {})
        for key, file in found.get("note", {}).items():
            self._files[key] = file
            self._sizes.setdefault(key, deque(maxlen=LOOKS)).append(file.size)

    def forget(self, kept: Collection[Key]) -> None:
        """Forget all processes except these."""
        for key in self._files.keys() - set(kept):
            del self._files[key]
            self._sizes.pop(key, None)

    def read(self, key: Key) -> str | None:
        """What the process wrote at its end; "" if that is unknown, or not known to be its own;
        None if the file has not answered in time and may do so later.

        A file that several ranks write to says nothing about any one of them.
        """
        file = self._files.get(key)
        if file is None or self._is_shared(key, file):
            return ""
        begin = self._sizes[key][0]
        found, _ = self._reading.run({key: lambda: _end_of(file, begin)})
        if key in found:
            return found[key]
        return None if key in self._reading.stuck else ""

    def _is_shared(self, key: Key, file: OutputStream) -> bool:
        return any(
            other != key and found.identity == file.identity for other, found in self._files.items()
        )


def _seen(proc: str, keys: Collection[Key]) -> dict[Key, OutputStream]:
    """The files of the processes whose standard error is a file."""
    files: dict[Key, OutputStream] = {}
    for key in keys:
        link = f"{proc}/{key[0]}/fd/2"
        try:
            stream = stream_of(link, os.readlink(link))
        except OSError:
            continue  # it ends just now, or is another user's
        if stream.identity is not None:
            files[key] = stream
    return files


def _end_of(file: OutputStream, begin: int) -> str:
    """The text from byte ``begin`` on, at most ``MAX_BYTES``; "" if it is another file."""
    handle = os.open(file.target, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(handle, "rb") as data:
        now = os.fstat(handle)
        if (now.st_dev, now.st_ino) != file.identity:
            return ""
        start = max(begin, now.st_size - MAX_BYTES)
        # The text before it shows whether it begins inside a secret.
        above = max(0, start - MAX_BYTES)
        data.seek(above)
        before = data.read(start - above).decode("utf-8", "replace")
        return mask_tail(data.read(MAX_BYTES).decode("utf-8", "replace"), before)

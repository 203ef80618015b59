"""Follows the command's output file, copies it to the terminal, and reads steps from it."""

from __future__ import annotations

import os
from pathlib import Path

from ray_sentinel.evidence.logs.training.bare_steps import LastStep
from ray_sentinel.supervise.attempt.terminal import Terminal
from ray_sentinel.supervise.run_folder import OUTPUT

MOST = 1 << 20
"""Most bytes of output that are shown in one look; of a command that writes faster, a part is left
out."""
LAST = 1 << 14
"""Bytes at the end of the output in which steps are searched for."""


class OutputTail:
    """One attempt's output. Not thread-safe."""

    def __init__(self, folder: Path, to: Terminal | None, *, from_end: bool = False) -> None:
        """``from_end``: whether an earlier supervisor has already shown the existing content, of
        which only the last step is read."""
        self.path = folder / OUTPUT
        self._to = to
        self._handle = -1
        self._offset = 0
        self._from_end = from_end
        self._last = LastStep()
        self._unread = b""
        """The end of what came since steps were last searched."""

    def poll(self) -> bool:
        """Read and show what is new. Returns whether there was anything."""
        if self._handle < 0 and not self._open():
            return False
        data = self._new()
        if not data and self._turned():
            data = self._new() if self._open() else b""
        if not data:
            return False
        self._show(data)
        self._unread = (self._unread + data)[-LAST:]
        return True

    @property
    def step(self) -> int | None:
        """The last step in the output; it is searched for when requested, not at each look."""
        if self._unread:
            text = self._unread.decode("utf-8", "replace")
            self._last.feed(text.replace("\r", "\n").split("\n"))
            self._unread = b""
        return self._last.step.step if self._last.step is not None else None

    def _open(self) -> bool:
        try:
            handle = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        self.close()
        self._handle = handle
        self._offset = 0
        if self._from_end:
            self._from_end = False
            self._offset = os.fstat(handle).st_size
            shown = min(self._offset, LAST)
            self._unread = os.pread(handle, shown, self._offset - shown)
        return True

    def _turned(self) -> bool:
        """Whether the keeper has begun a new file."""
        try:
            return os.stat(self.path).st_ino != os.fstat(self._handle).st_ino
        except OSError:
            return False

    def _new(self) -> bytes:
        size = os.fstat(self._handle).st_size
        if size - self._offset > MOST:
            skipped = size - self._offset - MOST
            self._show(f"\n[{skipped} bytes are not shown; they are in {self.path}]\n".encode())
            self._offset = size - MOST
        data = os.pread(self._handle, MOST, self._offset)
        self._offset += len(data)
        return data

    def _show(self, data: bytes) -> None:
        if self._to is not None:
            self._to.write(data)

    def close(self) -> None:
        """Close the file."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

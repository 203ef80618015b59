"""Writes output to a terminal that may block, without ever waiting for it.

Ctrl-S, ``less``, or a stalled ssh connection block whoever writes to them. A blocked supervisor
sees no hang and restarts nothing. So a thread of its own writes, and what it cannot write in time
is left out and counted.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections import deque
from typing import BinaryIO

MOST_WAITING = 8 << 20
"""Most bytes that may be queued for the terminal; what exceeds them is not shown."""
PIECE = 1 << 16
"""Most bytes handed over at once."""
CLOSE_SECONDS = 2.0
"""Seconds after which, at the end, a terminal that accepts nothing is given up."""


class Terminal:
    """Writes to ``to`` in a thread of its own. Once the terminal is gone, nothing is shown any
    more."""

    def __init__(self, to: BinaryIO, most_waiting: int = MOST_WAITING) -> None:
        self._to, self._most = to, most_waiting
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._left_out = 0
        self._taken = 0
        self._change = threading.Condition()
        self._over = False
        self._thread: threading.Thread | None = None

    def write(self, data: bytes) -> None:
        """Queue output if there is room. Never waits."""
        with self._change:
            if self._over or not data:
                return
            if self._size + len(data) > self._most:
                self._left_out += len(data)
                return
            if self._left_out:
                note = f"\n[{self._left_out} bytes are not shown: the terminal was too slow]\n"
                self._append(note.encode())
                self._left_out = 0
            self._append(data)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="ray-sentinel-terminal", daemon=True
                )
                self._thread.start()
            self._change.notify_all()

    def _append(self, data: bytes) -> None:
        self._waiting.extend(data[at : at + PIECE] for at in range(0, len(data), PIECE))
        self._size += len(data)

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Write what is queued, as long as the terminal accepts some of it every few seconds."""
        with self._change:
            taken = -1
            while self._waiting and not self._over and taken != self._taken:
                taken = self._taken
                self._change.wait_for(lambda: not self._waiting or self._over, seconds)
            self._over = True
            self._change.notify_all()

    def _run(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._to.flush()  # what was printed before comes first
        while True:
            with self._change:
                self._change.wait_for(lambda: self._waiting or self._over)
                if self._over:
                    return
                data = self._waiting[0]
            try:
                self._out(data)
            except (OSError, ValueError):  # closed at the other end, or here
                with self._change:
                    self._over = True
                    self._change.notify_all()
                return
            with self._change:
                self._waiting.popleft()
                self._size -= len(data)
                self._change.notify_all()

    def _out(self, data: bytes) -> None:
        handle = _handle(self._to)
        if handle is None:
            self._to.write(data)
            self._to.flush()
            self._taken += 1
            return
        # Not through the stream's buffer: its lock would be held at the interpreter's end.
        while data:
            try:
                data = data[os.write(handle, data) :]
            except BlockingIOError:  # whoever shares it made it non-blocking
                select.select([], [handle], [])
            else:
                self._taken += 1


def _handle(to: BinaryIO) -> int | None:
    try:
        return to.fileno()
    except (OSError, ValueError, AttributeError):
        return None  # such as io.BytesIO, or a notebook's

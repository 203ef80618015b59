"""The runner's ends of a collector's pipes: non-blocking, watched by one selector."""

from __future__ import annotations

import os
import selectors
from collections.abc import Callable
from typing import IO

from ray_sentinel import regex as re

LOG_LIMIT = 128 << 10
"""Most bytes of log that are read of one run; beyond that the process must wait for its next run,
or is killed at its deadline."""
_LINE_LIMIT = 4 << 10
_TAIL = 16 << 10
_FRAME = re.compile(r'^  File "([^"]+)", line (\d+) in (\S+)', re.MULTILINE)


class PipeEnd:
    """One end of a pipe, non-blocking, with a handler for when it is ready."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        pipe: IO[bytes],
        event: int,
        handler: Callable[[], None],
    ) -> None:
        self._selector, self._pipe, self._event, self._handler = selector, pipe, event, handler
        self._watched = False
        os.set_blocking(pipe.fileno(), False)

    @property
    def closed(self) -> bool:
        """Whether it was closed on this side."""
        return self._pipe.closed

    def watch(self, on: bool = True) -> None:
        """Set whether the handler is called when the pipe is ready."""
        if on is not self._watched and not self.closed:
            self._watched = on
            if on:
                self._selector.register(self._pipe, self._event, self._handler)
            else:
                self._selector.unregister(self._pipe)

    def read(self, size: int) -> bytes | None:
        """Read the available bytes; empty at the end, None if there are none now or it is
        closed."""
        if self.closed:
            return None
        try:
            return os.read(self._pipe.fileno(), size)
        except BlockingIOError:
            return None

    def write(self, data: bytes | bytearray) -> int | None:
        """Write. Returns how many bytes were accepted, None if the other side has closed."""
        try:
            return os.write(self._pipe.fileno(), data)
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            return None

    def close(self) -> None:
        """Close the pipe and stop watching it."""
        if not self.closed:
            self.watch(False)
            self._pipe.close()


class StderrLog:
    """A process's stderr, split into bounded lines, and the place where the process hung if that is
    in it."""

    def __init__(
        self, selector: selectors.BaseSelector, pipe: IO[bytes], on_line: Callable[[str], None]
    ) -> None:
        self._end = PipeEnd(selector, pipe, selectors.EVENT_READ, self.read)
        self._on_line = on_line
        self._room = LOG_LIMIT
        self._line = self._tail = b""
        self._end.watch()

    def read(self) -> None:
        """Read the available bytes."""
        data = self._end.read(1 << 16)
        if data is None:
            return
        self._tail = (self._tail + data)[-_TAIL:]
        *lines, self._line = (self._line + data).split(b"\n")
        if len(self._line) > _LINE_LIMIT or not data:
            lines.append(self._line)
            self._line = b""
        for line in lines:
            if line:
                self._on_line(line[:_LINE_LIMIT].decode("utf-8", "backslashreplace"))
        self._room -= len(data)
        if not data:
            self._end.close()
        elif self._room <= 0:
            self._on_line(f"(logged {LOG_LIMIT} bytes in one run: the rest waits)")
            self._end.watch(False)

    def refill(self) -> None:
        """Reset the limit of logged lines, because a new run begins."""
        self._room = LOG_LIMIT
        self._end.watch()

    def where(self) -> str:
        """Where the process was when its own timer ended it: " in FUNCTION (FILE:LINE)", or empty.
        Format: CPython's ``faulthandler.dump_traceback_later``, innermost frame first."""
        text = self._tail.decode("utf-8", "replace")
        start = text.rfind("Timeout (")
        if start < 0:
            return ""
        # Threads come youngest first; the one that collects is the oldest.
        thread = text[start:].rsplit("(most recent call first):", 1)[-1]
        frame = _FRAME.search(thread)
        return f" in {frame[3]} ({os.path.basename(frame[1])}:{frame[2]})" if frame else ""

    def close(self) -> None:
        """Log the last lines and close."""
        self.read()
        self._end.close()

"""Starts the watchman of one trace (see ``watchman``)."""

from __future__ import annotations

import os
import select
import subprocess
import sys

from ray_sentinel import process as programs
from ray_sentinel.capture import watchman
from ray_sentinel.errors import MissingPartError

READY = 5.0
"""Seconds to wait until the watchman reports that it is ready; usually it takes 20 ms."""
FINISH = watchman.PATIENCE + 1.0
"""Seconds to wait for the watchman to end by itself where an error broke the trace off."""


class Watched:
    """While the block runs, a process is continued if we are killed and leave it stopped, or if an
    error ends the block. ``ready`` is False if the watchman could not be started; then nothing
    intrusive should be done."""

    def __init__(self, pid: int, start: int) -> None:
        self._pid, self._start = pid, start
        self._child: subprocess.Popen[bytes] | None = None
        self.ready = False

    def __enter__(self) -> Watched:
        program = [sys.executable, "-I", "-S", watchman.__file__, str(self._pid), str(self._start)]
        try:
            child = programs.spawn(
                program,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={"PATH": os.environ.get("PATH", "")},
            )
        except (OSError, MissingPartError):
            return self  # ready stays False
        self._child = child
        assert child.stdout is not None
        handle = child.stdout.fileno()
        self.ready = readable(handle, READY) and os.read(handle, 1) == b"r"
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        child = self._child
        if child is None:
            return
        if error is None:
            _release(child)
        else:
            _leave_to(child)
        programs.end(child, grace=0.5)
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()


def _release(child: subprocess.Popen[bytes]) -> None:
    """Tell the watchman that the trace ended well."""
    try:
        if child.stdin is not None:
            os.write(child.stdin.fileno(), b"k")
    except OSError:
        pass  # it has ended already: there is nobody left to tell


def _leave_to(child: subprocess.Popen[bytes]) -> None:
    """Close the pipe without a message, as if we had been killed, and let the watchman finish."""
    if child.stdin is not None:
        child.stdin.close()
    try:
        child.wait(timeout=FINISH)
    except subprocess.TimeoutExpired:
        pass  # it is ended by force


def readable(handle: int, seconds: float) -> bool:
    """Whether there is something to read, or the end, within ``seconds``. Also for a descriptor
    that ``select`` does not take: an agent may have thousands."""
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(seconds * 1000))

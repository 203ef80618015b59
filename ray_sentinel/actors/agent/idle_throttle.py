"""Lets the main thread of an actor rest, which Ray wakes a hundred times a second.

The main thread of a Ray worker waits for calls, and every 10 ms looks whether a signal has come
(``CheckSignals`` of Ray's core worker; a running cluster cannot be told another interval). In an
actor that does nothing else this is nearly all that it takes of a CPU, 0.6 to 0.8 % of a core on
every node. Ray's look runs Python's signal handlers, and one that sleeps, with the GIL let go, is
as good as a longer interval: calls wait for it, other threads do not.
"""

from __future__ import annotations

import _thread
import signal
import time
from functools import partial
from types import FrameType

from ray_sentinel.actors.loops import Loop

REST_SECONDS = 0.185
"""What a call may wait longer."""
ROUND_SECONDS = 0.2
"""From one rest to the next: the difference is more than Ray's interval, so that calls are met."""
NUMBER = signal.SIGALRM
"""Handled, but never sent: only the interpreter is told that it came."""


def rest_between_calls() -> Loop:
    """Make the calling thread, which must be the main one, rest from now on, until the loop that is
    returned is stopped.

    Raises ValueError on another thread.
    """
    signal.signal(NUMBER, _Rest())
    return Loop(ROUND_SECONDS, partial(_thread.interrupt_main, NUMBER), name="ray-sentinel-rest")


class _Rest:
    def __init__(self) -> None:
        self._resting = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self._resting:
            return  # the next came early: no rest within a rest
        self._resting = True
        try:
            time.sleep(REST_SECONDS)
        finally:
            self._resting = False

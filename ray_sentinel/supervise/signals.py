"""The signals that a supervisor is given: to stop, or for the command."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)


@contextlib.contextmanager
def caught(stop: Callable[[int], None], pass_on: Callable[[int], None]) -> Iterator[None]:
    """Call these with a signal's number until the block ends; in the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_stop(number: int, frame: FrameType | None) -> None:
        stop(number)

    def on_other(number: int, frame: FrameType | None) -> None:
        pass_on(number)

    # What nohup had ignored stays so: the run is to outlive its terminal.
    stopping = [
        number
        for number in STOPPING
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN
    ]
    before = {
        **{number: signal.signal(number, on_stop) for number in stopping},
        **{number: signal.signal(number, on_other) for number in PASSED_ON},
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""Waits until the user closes a command that serves."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""The signals that close the command, as far as this system has them."""


class ClosedError(BaseException):
    """Ctrl-C, SIGTERM, or the terminal has closed: not an error, and caught by nobody on the
    way."""


@contextmanager
def until_closed() -> Iterator[None]:
    """Leave the block cleanly at the first signal that requests it; a second one changes
    nothing."""

    def close(_number: int, _frame: FrameType | None) -> None:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        raise ClosedError

    before = {number: signal.signal(number, close) for number in SIGNALS}
    try:
        yield
    except ClosedError:
        pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

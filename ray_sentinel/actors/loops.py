"""Loops that survive what their steps raise."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

QUIET_SECONDS = 60.0
"""The same failure is logged once in this time."""


def every(
    interval: float, step: Callable[[], None], *, name: str, stop: threading.Event
) -> threading.Thread:
    """Run ``step`` every ``interval`` seconds on a thread of its own until ``stop`` is set.

    A step that took longer than the interval is followed by the next at once, and missed ones are
    not made up for.
    """
    thread = threading.Thread(
        target=_loop, args=(interval, step, name, stop), name=name, daemon=True
    )
    thread.start()
    return thread


def _loop(interval: float, step: Callable[[], None], name: str, stop: threading.Event) -> None:
    said: dict[str, float] = {}
    due = time.monotonic()
    while not stop.is_set():
        try:
            step()
        except Exception as error:  # a watcher must outlive its own mistakes
            message = f"{type(error).__name__}: {error}"
            now = time.monotonic()
            if now - said.get(message, -QUIET_SECONDS) >= QUIET_SECONDS:
                said[message] = now
                log.exception("%s failed; it goes on", name)
        due = max(due + interval, time.monotonic())
        stop.wait(max(0.0, due - time.monotonic()))

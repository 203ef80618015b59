"""Waiting for what happens in other processes, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(
    look: Callable[[], T | None], what: str, seconds: float = 30.0, every: float = 0.1
) -> T:
    """What ``look`` returns once it is true; fails after ``seconds``."""
    deadline = time.monotonic() + seconds
    while True:
        if found := look():
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:.0f} s: {what}")
        time.sleep(every)

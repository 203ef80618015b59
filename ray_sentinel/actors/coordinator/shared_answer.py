"""One answer for all who ask the same within some seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from ray_sentinel.clock import Clock

T = TypeVar("T")

SHARED_SECONDS = 3.0
"""Seconds for which the pulse and the lanes are given again: open pages ask for them every ten
seconds, and what is drawn of an hour has places of ten."""


class SharedAnswer(Generic[T]):
    """Gives what ``make`` makes, and gives it again for ``seconds``; whoever asks while it is made
    waits for it. Any thread may call."""

    def __init__(
        self, make: Callable[[], T], clock: Clock, seconds: float = SHARED_SECONDS
    ) -> None:
        self._make = make
        self._clock = clock
        self._seconds = seconds
        self._lock = threading.Lock()
        self._kept: tuple[float, T] | None = None

    def __call__(self) -> T:
        """The answer, or raises what ``make`` raised."""
        with self._lock:
            asked_at = self._clock.monotonic()
            if self._kept is not None and asked_at - self._kept[0] < self._seconds:
                return self._kept[1]
            self._kept = None  # two would be held while the next is made
            made = self._make()
            self._kept = asked_at, made
            return made

"""Loops that survive the exceptions of their steps."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")

QUIET_SECONDS = 60.0
"""Seconds within which the same failure is logged only once."""


class Complaints:
    """Which failures were reported recently."""

    def __init__(self) -> None:
        self._said: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._said)

    def is_new(self, message: str, now: float) -> bool:
        """Whether it was not reported in the last ``QUIET_SECONDS``; from now on (monotonic) it
        is."""
        self._said = {told: at for told, at in self._said.items() if now - at < QUIET_SECONDS}
        if message in self._said:
            return False
        self._said[message] = now
        return True


class _Thread(ABC):
    """A daemon thread of our own that outlives the exceptions of its steps."""

    def __init__(self, name: str, failed: Callable[[Exception], None] | None = None) -> None:
        self._name = name
        self._failed = failed
        self._stop = False
        self._change = threading.Condition()
        self._complaints = Complaints()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self, seconds: float = 0.0) -> bool:
        """Begin no further step, and wait up to ``seconds`` for the running one. Returns whether it
        has ended."""
        with self._change:
            self._stop = True
            self._change.notify_all()
        if seconds and threading.current_thread() is not self._thread:
            self._thread.join(seconds)
        return not self._thread.is_alive()

    @abstractmethod
    def _run(self) -> None:
        """Take steps until ``_stop``."""

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:  # a watcher must outlive its own mistakes
            if self._failed is not None:
                self._failed(error)
            elif self._complaints.is_new(f"{type(error).__name__}: {error}", time.monotonic()):
                log.exception("%s failed; it goes on", self._name)


class Loop(_Thread):
    """Runs ``step`` every ``interval`` seconds on a thread of its own, starting now.

    A step that took longer than the interval is followed by the next at once, and missed ones are
    not made up for.
    """

    def __init__(self, interval: float, step: Callable[[], None], *, name: str) -> None:
        self._interval, self._step, self._woken = interval, step, False
        super().__init__(name)

    def wake(self) -> None:
        """Run the next step at once. May be called from any thread."""
        with self._change:
            self._woken = True
            self._change.notify_all()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stop:
            self._guarded(self._step)
            due = max(due + self._interval, time.monotonic())
            with self._change:
                left = max(0.0, due - time.monotonic())
                if self._change.wait_for(lambda: self._woken or self._stop, left):
                    self._woken, due = False, time.monotonic()


class Newest(_Thread, Generic[T]):
    """Calls ``step`` with the newest offered value, on a thread of its own: ``offer`` never waits,
    and of the values offered during a long step only the newest is used. ``failed`` gets what a
    step raises; without it that is logged."""

    def __init__(
        self,
        step: Callable[[T], None],
        *,
        name: str,
        failed: Callable[[Exception], None] | None = None,
    ) -> None:
        self._step = step
        self._offered: list[T] = []
        super().__init__(name, failed)

    def offer(self, item: T) -> None:
        """Set the value for the next step."""
        with self._change:
            self._offered = [item]
            self._change.notify_all()

    def _run(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._offered or self._stop)
                if self._stop:
                    return
                item = self._offered.pop()
            self._guarded(partial(self._step, item))

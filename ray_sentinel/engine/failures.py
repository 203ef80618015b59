"""Failures within an event: the mistake of one rule must not stop the others, nor the watch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

MOST_KEPT = 100
"""Most parts whose failures are remembered."""


class Failures:
    """The first failure of each part of the engine, kept until it is reported."""

    def __init__(self) -> None:
        self.told: dict[str, str] = {}
        """What each part's first failure said, by part."""
        self._new: dict[str, Exception] = {}
        self.count = 0
        """How often any part has failed."""

    def guarded(self, part: str, work: Callable[[], Iterable[T]]) -> list[T]:
        """Yield from ``work`` until it ends or fails."""
        found: list[T] = []
        try:
            # Items are taken one by one, so that those from before the failure count.
            for item in work():
                found.append(item)  # noqa: PERF402
        # One part's mistake must not stop the others; the engine's caller logs it.
        except Exception as error:  # noqa: BLE001
            self._note(part, error)
        return found

    def run(self, part: str, work: Callable[[], None]) -> None:
        """Run ``work``, and record its failure."""

        def nothing() -> Iterable[None]:
            work()
            return ()

        self.guarded(part, nothing)

    def _note(self, part: str, error: Exception) -> None:
        self.count += 1
        if part not in self.told and len(self.told) < MOST_KEPT:
            self.told[part] = f"{type(error).__name__}: {error}"
            self._new[part] = error

    def take_new(self) -> dict[str, Exception]:
        """The failures that have not been reported yet: part → its first failure."""
        taken, self._new = self._new, {}
        return taken

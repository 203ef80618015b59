"""Records of dead processes: reported once, kept for a while, then deleted in small batches.

The agent that watched the process reports its exit and deletes its record. A record that is dead
when first seen belongs to a process that ended while its agent was down: it is reported if it is
recent, because it may be the decisive one. Old ones are garbage, and any agent deletes them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from ray_sentinel.progress.proc.proc_stat import Key
from ray_sentinel.progress.reader import RecordReader
from ray_sentinel.progress.record_view import RecordView

RETAIN = 10.0
"""Seconds that a record is kept after its exit was reported, for an agent that was killed in
between."""
FRESH = 60.0
"""Seconds since its last sign of life within which a dead record is still reported."""
LITTER = 120.0
"""Seconds since its last sign of life after which any agent deletes a dead record."""
AT_ONCE = 500
"""Most records deleted in one poll."""


class StaleRecords:
    """Decides about dead records; all times are CLOCK_MONOTONIC seconds."""

    def __init__(self, reader: RecordReader) -> None:
        self._reader = reader
        self._told: dict[Key, float] = {}
        self._kept: set[Key] = set()
        self.problems: list[str] = []

    def mark_reported(self, key: Key, now: float) -> None:
        """Mark the exit of this process as reported."""
        self._told[key] = now

    def unreported(
        self,
        dead: Iterable[RecordView],
        watched: Collection[Key],
        now: float,
        mine: Callable[[RecordView], bool] = lambda _: True,
    ) -> list[RecordView]:
        """The dead records that nobody watched and whose processes died a short time ago; each is
        returned once.

        ``mine`` says whether this agent watches a rank; others are left to their own agents.
        """
        found = []
        for view in dead:
            fresh = view.this_boot and 0 <= now - view.last_sign <= FRESH
            if view.key in self._told or view.key in watched or not fresh or view.detached:
                continue
            if not mine(view):
                continue
            found.append(view)
            self.mark_reported(view.key, now)
        return found

    def clean(self, dead: Collection[RecordView], watched: Collection[Key], now: float) -> None:
        """Delete the records whose time is over."""
        deleted = 0
        for view in dead:
            if view.key in watched or view.key in self._kept or deleted >= AT_ONCE:
                continue
            told = self._told.get(view.key)
            over = told is not None and now - told >= RETAIN
            age = now - view.last_sign
            if over or not view.this_boot or age > LITTER or age < 0:
                deleted += 1
                self._delete(view)
        present = {view.key for view in dead}
        self._told = {
            key: at for key, at in self._told.items() if key in present or now - at < RETAIN
        }
        self._kept &= present

    def _delete(self, view: RecordView) -> None:
        try:
            self._reader.remove(view)
        except OSError as error:
            self._kept.add(view.key)
            self.problems.append(
                f"{view.path}: the record of a dead process cannot be deleted: {error.strerror}"
            )

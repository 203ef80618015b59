"""What a version of a collector said in its runs, and how long it holds."""

from __future__ import annotations

import math

from ray_sentinel.collect.protocol import Outcome, RunAnswer
from ray_sentinel.model.metrics import Family

KEPT_INTERVALS = 3
"""Families older than so many intervals are dropped: a value served for ever would be a lie."""


class LastResult:
    """How the last run went, and the families of the last good one."""

    def __init__(self) -> None:
        self.tried = False
        """A run has ended, well or not."""
        self.success: bool | None = None
        self.seconds: float | None = None
        self.last_success: float | None = None
        """Unix seconds."""
        self.families: tuple[Family, ...] = ()
        """What may be served now."""
        self.problems: tuple[str, ...] = ()
        self.error = ""
        """What the last run raised."""
        self.misconfigured = False
        """Its settings are what was wrong."""
        self.outcome: Outcome | None = None
        """Of the last run that was answered."""
        self._last_families: tuple[Family, ...] = ()
        """What it yielded last: "nothing new" means that it still holds."""
        self._fresh_at = 0.0

    def answered(self, answer: RunAnswer, now: float, wall: float) -> None:
        """A run ended by itself, ``now`` (monotonic) or at ``wall`` (Unix seconds)."""
        self.tried, self.misconfigured = True, answer.misconfigured
        self.outcome, self.problems = answer.outcome, answer.problems
        if answer.outcome == "skip":
            self.success, self.families = None, ()
        elif answer.outcome in ("ok", "nodata", "absent"):
            self.success, self.error = True, ""
            self.last_success, self._fresh_at = wall, now + answer.pause
            if answer.outcome != "nodata":
                self._last_families = answer.families
            self.families = self._last_families
        else:
            self.failed(answer.message)

    def failed(self, why: str) -> None:
        """A run failed, or its process did."""
        self.tried, self.success, self.error = True, False, why

    def inherit(self, older: LastResult) -> None:
        """What the version before yielded last still holds: this one had nothing new to say."""
        if self.outcome == "nodata":
            self.families = self._last_families = older._last_families

    @property
    def gist(self) -> tuple[bool | None, tuple[str, ...], tuple[Family, ...]]:
        """What is known of it, but for when and how fast it was said."""
        return (self.success, self.problems, self.families)

    def expiry(self, interval: float) -> float:
        """When the families become too old (monotonic seconds); infinity where there are none."""
        return self._fresh_at + KEPT_INTERVALS * interval if self.families else math.inf

    def complaint(self) -> str:
        """What is wrong with the last run, or empty."""
        if self.success is False:
            return self.error
        more = f" (and {len(self.problems) - 1} more)" if len(self.problems) > 1 else ""
        return self.problems[0] + more if self.problems else ""

"""Calls that have run for many times as long as usual in a job that goes on.

The titles of processes do not show them: tasks come and go in many workers, and a process that runs
several calls has the title of the one that began last. As long as others begin and end, nothing is
silent either. So Ray is asked now and then since when its running calls have been running.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from ray_sentinel.backoff import Backoff
from ray_sentinel.engine.ray.methods import (
    LEAST_TIMEOUT,
    RHYTHM,
    KnownMethod,
    call_timeout,
    method_of,
)
from ray_sentinel.model.ray_calls import RayCall

ASK_EVERY = 30.0
"""Seconds between two requests for the running calls of a job."""
LOOKS = Backoff(first=5.0, most=600.0)
"""The seconds between looks at a job in which the same calls are overdue."""
UNKNOWN = Backoff(first=10.0, most=600.0)
"""The seconds between requests for the durations of calls that run for long, and of whose name
none, or too few, have ever ended."""
MOST_NAMES = 200
"""Most names of calls that are kept, those that have run for longest."""


class LongCalls(msgspec.Struct, kw_only=True):
    """The calls of one job that have been running for long. Times are on the coordinator's
    clock."""

    asked_at: float = 0.0
    """When the running calls were last requested."""
    since: dict[str, float] = {}
    """Since when the oldest running call of each name has been running; constructors are not among
    them, because they have time limits of their own."""
    overdue: tuple[tuple[str, float], ...] = ()
    """Those that were overdue at the last look."""
    looks: int = 0
    """Looks since then that showed the same ones."""
    unknown: tuple[str, ...] = ()
    """The names for which durations were last requested in vain."""
    in_vain: int = 0
    """Such requests."""
    times_asked_at: float = 0.0
    """When the last one was made."""

    def is_due(self, now: float, first_seen: float) -> bool:
        """Whether to request the running calls now."""
        return now - max(self.asked_at, first_seen) >= ASK_EVERY

    def apply(self, running: Mapping[str, float], now: float) -> None:
        """Record since when the oldest running call of each name has been running."""
        long = [(at, name) for name, at in running.items() if now - at > LEAST_TIMEOUT]
        self.since = {name: at for at, name in sorted(long)[:MOST_NAMES]}
        self.asked_at = now

    def lacks_times(self, methods: Mapping[str, KnownMethod], now: float) -> bool:
        """Whether to request now how long calls of these names usually take. Records that it is
        done."""
        unknown = tuple(name for name in self.since if _timed(methods, name) is None)
        if not unknown or any(_timed(methods, name) for name in self.unknown):
            self.in_vain = 0
        self.unknown = unknown
        if not unknown or now - self.times_asked_at < UNKNOWN.delay(self.in_vain):
            return False
        self.times_asked_at, self.in_vain = now, self.in_vain + 1
        return True

    def overdue_now(
        self, methods: Mapping[str, KnownMethod], now: float
    ) -> tuple[tuple[str, float], ...]:
        """The names of overdue calls, each with the time since when the oldest has been running."""
        return tuple(
            (name, at)
            for name, at in self.since.items()
            if (known := _timed(methods, name)) is not None
            and now - at > call_timeout(known.longest_call)
        )

    def look_interval(self, methods: Mapping[str, KnownMethod], now: float) -> float | None:
        """Seconds between two looks because of overdue calls; None if there are none."""
        overdue = self.overdue_now(methods, now)
        if not overdue:
            return None
        return LOOKS.delay(self.looks if overdue == self.overdue else 0)

    def have_changed(self, methods: Mapping[str, KnownMethod], now: float) -> bool:
        """Whether others are overdue than at the last look, or none any more."""
        return self.overdue_now(methods, now) != self.overdue

    def count_look(self, methods: Mapping[str, KnownMethod], now: float) -> None:
        """Record that the job has been looked at."""
        overdue = self.overdue_now(methods, now)
        self.looks = self.looks + 1 if overdue == self.overdue else 1
        self.overdue = overdue


def running_since(calls: Iterable[RayCall]) -> dict[str, float]:
    """Since when the oldest running call of each name has been running, in Unix time; without
    drivers and constructors."""
    found: dict[str, float] = {}
    for call in calls:
        timed = call.kind in ("task", "actor-task") and call.state == "running"
        if timed and call.name and call.since is not None:
            found[call.name] = min(call.since, found.get(call.name, call.since))
    return found


def _timed(methods: Mapping[str, KnownMethod], name: str) -> KnownMethod | None:
    """What is known of a method, if Ray has told how long several of its calls took."""
    known = methods.get(method_of(name))
    return known if known is not None and known.told >= RHYTHM else None

"""Phases of a job and how long each may stay silent."""

from __future__ import annotations

from collections.abc import Mapping

from ray_sentinel.engine.pace import Pace

TRAINING = frozenset({"", "train"})
"""Silence here is measured in steps; a rank that declares nothing is taken to be training once it
has made its first step."""

BUDGETS: dict[str, float] = {
    "import": 300.0,
    "dataset": 1800.0,
    "placement": 900.0,
    "services": 600.0,
    "process_group": 900.0,
    "model_load": 1800.0,
    "kv_cache": 900.0,
    "graph_capture": 1200.0,
    "queue_wiring": 300.0,
    "compile": 1800.0,
    "startup": 1800.0,
    "evaluate": 1800.0,
    "checkpoint": 1800.0,
    "teardown": 600.0,
}
"""Seconds. Wide, because a wrong alarm costs more than a late one; what a job was seen to need
narrows them down."""

DEFAULT_BUDGET = 1800.0
LEARNED_FACTOR = 3.0
LEAST_LEARNED = 60.0


class PhaseBook:
    """Durations of phases of one job, kept over its attempts."""

    def __init__(self, budgets: Mapping[str, float] | None = None) -> None:
        self._set = dict(budgets or {})
        self._seen: dict[str, Pace] = {}

    def add(self, phase: str, seconds: float) -> None:
        """A phase has ended after ``seconds``."""
        self._seen.setdefault(phase, Pace()).add(seconds)

    def budget(self, phase: str) -> float:
        """Seconds of silence that ``phase`` may take: what was set, else what was learned from at
        least two of its kind, else the built-in."""
        if phase in self._set:
            return self._set[phase]
        seen = self._seen.get(phase)
        default = BUDGETS.get(phase, DEFAULT_BUDGET)
        if seen is None or len(seen) < 2:
            return default
        longest = seen.quantile(1.0) or 0.0
        return max(LEAST_LEARNED, LEARNED_FACTOR * longest)

    def usual(self, phase: str) -> float | None:
        """The longest time that ``phase`` was seen to take, in seconds."""
        seen = self._seen.get(phase)
        return seen.quantile(1.0) if seen else None

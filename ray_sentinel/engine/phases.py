"""Phases of a job and how long each may stay silent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from ray_sentinel.engine.durations import DurationStats
from ray_sentinel.evidence.minority import usual
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.stacks import StackFact

TRAINING = frozenset({"", "train"})
"""Silence here is measured in steps. A rank that declares nothing counts as training once it has
made its first step."""

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
"""Seconds. They are wide, because a false alarm costs more than a late one; the observed durations
of a job narrow them down."""

DEFAULT_BUDGET = 1800.0
"""Seconds for a phase with a name of the user's own."""
LEARNED_FACTOR = 3.0
"""Multiple of the longest duration that was seen."""
LEAST_LEARNED = 60.0
"""Seconds: a phase that was always short may be slow once."""

MOST_PHASES = 64
"""Most phases of one job that are kept: the most recent ones."""
MOST_KEPT = 16
"""Most durations of one phase that outlive the cluster."""
LONGEST = 7 * 86_400.0
"""Seconds above which a duration is ignored: that was not a phase."""

JOINING = "process_group"
STARTING = frozenset({"import", JOINING, "model_load", "compile", "graph_capture"})
"""Phases that stacks alone can show while a job starts up."""


class Occurrence(msgspec.Struct):
    """One time that a job was in a phase."""

    ended: float
    """When its last rank left it."""
    longest: float
    """Seconds that the slowest rank was in it."""
    ranks: set[ProcessId]
    """The processes that have left it."""


class PhaseBook(msgspec.Struct, dict=True):
    """Durations of the phases of one job, kept across its attempts."""

    seen: dict[str, DurationStats] = {}
    """Durations by phase, the most recently seen phase last."""
    last: dict[str, Occurrence] = {}

    def __post_init__(self) -> None:
        self._set: Mapping[str, float] = {}

    def bind(self, budgets: Mapping[str, float]) -> PhaseBook:
        """Set the budgets (s) from the configuration."""
        self._set = budgets
        return self

    def record(self, phase: str, rank: ProcessId, begun: float, ended: float) -> None:
        """Record that a rank was in ``phase`` between two times (s) of one clock.

        All ranks go through a phase together: what overlaps is one occurrence, as long as the
        longest of them. A rank that enters the phase again begins another occurrence.
        """
        seconds, last = max(0.0, ended - begun), self.last.get(phase)
        if last is None or begun >= last.ended or rank in last.ranks:
            self.add(phase, seconds)
            self.last[phase] = Occurrence(ended, seconds, {rank})
            return
        if seconds > last.longest:
            self.seen[phase].replace_last(seconds)
        last.ended, last.longest = max(ended, last.ended), max(seconds, last.longest)
        last.ranks.add(rank)

    def add(self, phase: str, seconds: float) -> None:
        """Record one more occurrence of a phase that took ``seconds``."""
        seen = self.seen[phase] = self.seen.pop(phase, DurationStats())
        seen.add(seconds)
        # Some name a phase after its epoch.
        while len(self.seen) > MOST_PHASES:
            oldest = next(iter(self.seen))
            del self.seen[oldest]
            self.last.pop(oldest, None)

    def budget(self, phase: str) -> float:
        """Seconds of silence that ``phase`` may take: what was configured, or what was learned from
        at least two occurrences, or the built-in budget."""
        if phase in self._set:
            return self._set[phase]
        seen = self.seen.get(phase)
        default = BUDGETS.get(phase, DEFAULT_BUDGET)
        if seen is None or len(seen) < 2:
            return default
        longest = seen.quantile(1.0) or 0.0
        return max(LEAST_LEARNED, LEARNED_FACTOR * longest)

    def usual(self, phase: str) -> float | None:
        """The longest time that ``phase`` was seen to take, in seconds."""
        seen = self.seen.get(phase)
        return seen.quantile(1.0) if seen else None

    def learned(self) -> dict[str, tuple[float, ...]]:
        """For each phase up to 16 durations in seconds, from the shortest to the longest seen."""
        return {
            phase: tuple(dict.fromkeys(seen.quantile(i / (MOST_KEPT - 1)) or 0.0 for i in _KEPT))
            for phase, seen in list(self.seen.items())[-MOST_PHASES:]
        }

    def relearn(self, learned: Mapping[str, Iterable[float]]) -> None:
        """Adopt what ``learned`` returned before; values that cannot be durations are left out."""
        for phase, durations in list(learned.items())[:MOST_PHASES]:
            for seconds in list(durations)[:MOST_KEPT]:
                if 0.0 < seconds < LONGEST:
                    self.add(phase, seconds)


_KEPT = range(MOST_KEPT)


def infer(facts: Iterable[StackFact]) -> str:
    """The start-up phase that more than half of the ranks' stacks show; "" if there is none."""
    return usual(map(phase_of, facts)) or ""


def phase_of(fact: StackFact) -> str:
    """The start-up phase that one rank's stack shows, or ""."""
    if fact.activity == "compile":
        return "compile"
    if fact.activity == "checkpoint":
        # Before the first step there is nothing to save.
        return "model_load"
    if "a communicator" in fact.label:
        return JOINING
    if fact.activity == "startup":
        return next((phase for word, phase in _STARTS.items() if word in fact.label), "")
    return ""


_STARTS = {
    "graph": "graph_capture",
    "import": "import",
    "ranks to join": JOINING,
}
"""The phase by the words that stacks' labels have for start-up."""


def format_duration(seconds: float) -> str:
    """A duration for people: "40 s", "4 min", "1 h 20 min"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if rest else f"{hours} h"

"""Evidence for and against each rank, weighed and added up.

Weights are on one scale: 2.5 is enough to name a rank, 6 and more is proof. The confidence of a
name is ``1 - 0.5 ** (score / 1.8)``: 0.62 at 2.5, 0.9 at 6, 0.95 at 8.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.incident import EvidenceItem

NAMED = 2.5
"""The score from which a rank is named."""
HALF = 1.8
"""Each such amount of score halves the doubt."""
MOST = 0.99
"""Confidence: evidence from outside is never certain."""
MOST_OTHERS = 8
"""Lines about innocent ranks that a verdict keeps: there may be thousands, and they are alike."""


class EvidenceScores:
    """What counts for and against whom, by process."""

    def __init__(self) -> None:
        self._lines: dict[ProcessId | None, list[EvidenceItem]] = {}

    def add(
        self, process: ProcessId | None, source: str, text: str, weight: float, rank: int | None
    ) -> None:
        """One line; ``process`` None for context that concerns nobody in particular."""
        item = EvidenceItem(source=source, text=text, rank=rank, weight=weight)
        self.put(process, item)

    def put(self, process: ProcessId | None, item: EvidenceItem) -> None:
        """A line that a rule wrote."""
        self._lines.setdefault(process, []).append(item)

    def score(self, process: ProcessId) -> float:
        """The sum of what is known about a process."""
        return sum((item.weight for item in self._lines.get(process, ())), 0.0)

    def named(self) -> list[ProcessId]:
        """Who has enough against them, the worst first."""
        accused = [p for p in self._lines if p is not None and self.score(p) >= NAMED]
        return sorted(accused, key=lambda process: (-self.score(process), process))

    def lines(self, first: Iterable[ProcessId]) -> tuple[EvidenceItem, ...]:
        """The lines about ``first``, then the context, then some of what concerns the others."""
        order: list[ProcessId | None] = [*first, None]
        told = [item for process in order for item in self._lines.get(process, ())]
        rest = sorted(p for p in self._lines if p is not None and p not in order)
        others = [item for process in rest for item in self._lines[process]]
        return (*told, *others[:MOST_OTHERS])


def confidence(score: float) -> float:
    """How sure a score makes us, 0..1."""
    return round(min(MOST, 1.0 - math.pow(0.5, max(score, 0.0) / HALF)), 3)

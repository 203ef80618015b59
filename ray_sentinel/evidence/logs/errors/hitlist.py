"""The hits of a file, bounded: of each signature the first and the last ones, and how many."""

from __future__ import annotations

from collections import deque

from ray_sentinel.evidence.logs.records import Hit

KEEP = 48
"""Number of the first hits, and of the last, that are kept of each signature in a file."""


class HitList:
    """Collects hits in the order in which they are found."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        """How often each signature was seen, by its id; folded lines as often as they say."""
        self._first: dict[str, list[Hit]] = {}
        self._last: dict[str, deque[Hit]] = {}

    def add(self, hit: Hit) -> None:
        """Count ``hit``, and keep it if it is among the first or the last."""
        name = hit.signature.id
        self.counts[name] = self.counts.get(name, 0) + hit.repeated
        first = self._first.setdefault(name, [])
        if len(first) < KEEP:
            first.append(hit)
        else:
            self._last.setdefault(name, deque(maxlen=KEEP)).append(hit)

    def kept(self) -> list[Hit]:
        """All hits that were kept, in the file's order."""
        hits = [hit for kept in self._first.values() for hit in kept]
        hits += [hit for kept in self._last.values() for hit in kept]
        return sorted(hits, key=lambda hit: hit.offset)

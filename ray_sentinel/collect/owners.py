"""Who may serve a metric: the first collector that yields it. Pure.

A family of one name has one meaning, so a second owner is refused. Collectors of one installed
package share (a card of either vendor has the same metrics), and what is installed goes before what
lies in a plugin folder. A name is free again when its owner serves nothing any more.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ray_sentinel.collect.protocol import CollectorSource

OURS = "ray_sentinel_"
"""Names that begin so are about the monitor itself."""
RUNNER_METRICS = frozenset({"hw_scrape_duration_seconds"})


class Party(msgspec.Struct, frozen=True):
    """Who yields: a collector, or the collectors of one package."""

    name: str
    installed: bool


def party_of(source: CollectorSource) -> Party:
    """The party that a source belongs to."""
    if source.kind == "entry-point":
        return Party(source.origin or source.name, True)
    return Party(source.name, False)


class Owners:
    """Metric name → its owner."""

    def __init__(self) -> None:
        self._owners: dict[str, tuple[Party, set[str]]] = {}

    def claim(self, source: CollectorSource, metrics: Iterable[str]) -> None:
        """The collector yields ``metrics``; it owns those that are free, and no others any more."""
        self.release(source.name)
        party = party_of(source)
        for metric in metrics:
            if metric.startswith(OURS) or metric in RUNNER_METRICS:
                continue
            held = self._owners.get(metric)
            if held is None or (party.installed and not held[0].installed):
                self._owners[metric] = (party, {source.name})
            elif held[0] == party:
                held[1].add(source.name)

    def release(self, collector: str) -> None:
        """The collector yields nothing any more."""
        for metric, (_, names) in list(self._owners.items()):
            names.discard(collector)
            if not names:
                del self._owners[metric]

    def owner(self, metric: str) -> str:
        """The names of the collectors that own ``metric``, for people; empty for a free one."""
        if metric.startswith(OURS) or metric in RUNNER_METRICS:
            return "the agent itself"
        held = self._owners.get(metric)
        return ", ".join(sorted(held[1])) if held is not None else ""

    def may_serve(self, collector: str, metric: str) -> bool:
        """Whether the collector owns ``metric``."""
        held = self._owners.get(metric)
        return held is not None and collector in held[1]

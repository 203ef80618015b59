"""The names of all series that are served, and those that an expression reads."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import metadata

from ray_sentinel.actors import metrics
from ray_sentinel.actors.agent import servers
from ray_sentinel.actors.coordinator import metrics as coordinator
from ray_sentinel.api import Collector
from ray_sentinel.collect import selfmetrics
from ray_sentinel.model.metrics import Metric

_NAME = re.compile(r"\b(?:hw|tb|train|server|ray|ray_sentinel)_\w+|\bup\b")
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')


@lru_cache(maxsize=1)
def catalogue() -> dict[str, Metric]:
    """Metrics of all collectors that ship with us, of the runner, the agent and the coordinator."""
    found = {}
    for point in metadata.entry_points(group="ray_sentinel.collectors"):
        kind: type[Collector] = point.load()
        found.update({metric.name: metric for metric in kind.metrics})
    for module in (selfmetrics, metrics, coordinator, servers):
        named = {m.name: m for m in vars(module).values() if isinstance(m, Metric)}
        found.update(named)
    return found


def metric_names() -> frozenset[str]:
    """The names of the catalogue."""
    return frozenset(catalogue())


def named_series(expression: str) -> set[str]:
    """The metric names in a PromQL expression; texts in quotes do not count."""
    return set(_NAME.findall(_TEXT.sub('""', expression)))

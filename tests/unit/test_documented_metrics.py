"""docs/metrics.md names every series that is served under a fixed name."""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from itertools import product
from pathlib import Path

from ray_sentinel.actors import metrics
from ray_sentinel.api import Metric
from ray_sentinel.collect import selfmetrics

DOCS = Path(__file__).parents[2] / "docs"


def documented() -> set[str]:
    """The names in the tables; ``a_{b,c}_d`` is two, and ``a_b{label}`` is ``a_b``."""
    text = "".join((DOCS / name).read_text() for name in ("metrics.md", "tensorboard.md"))
    found = set()
    for word in re.findall(r"`([a-z][^`\s]*)`", text):
        parts = re.split(r"\{([^}]*)\}", word)
        choices = [
            [*part.split(","), ""] if index % 2 else [part] for index, part in enumerate(parts)
        ]
        found |= {"".join(chosen) for chosen in product(*choices)}
    return found


def served() -> set[str]:
    ours = [value for module in (metrics, selfmetrics) for value in vars(module).values()]
    collectors = [entry.load() for entry in entry_points(group="ray_sentinel.collectors")]
    declared = [metric for collector in collectors for metric in collector.metrics]
    return {metric.name for metric in (*ours, *declared) if isinstance(metric, Metric)}


def test_every_series_is_documented() -> None:
    names = served()
    assert len(names) > 100
    known = documented()
    whole = tuple(name.removesuffix("*") for name in known if name.endswith("_*"))
    assert sorted(name for name in names - known if not name.startswith(whole)) == []

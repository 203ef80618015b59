"""ray.waits: in a Ray job, the process or resource that the others wait for makes no progress."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.ray import waits as ray_waits
from ray_sentinel.engine.rule import Rule
from ray_sentinel.model.incident import Finding


class RayWaits(Rule):
    """Names the process, the circle of calls or the missing resource at the end of the waits."""

    name = ray_waits.RULE

    def evaluate(self, view: ClusterView, now: float) -> Iterator[Finding]:
        return ray_waits.findings(view, now)

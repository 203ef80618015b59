"""gpu.throttle: a GPU's clocks are held down for heat or for want of power."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.alerting import AlertRule, watched
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.rule import thresholds
from ray_sentinel.model.alert import Alert

HARMFUL = ("thermal", "hw_slowdown", "power_brake", "ppt", "current")
"""In the names of reasons. Idle clocks and the everyday power cap are none."""


class GpuThrottle(AlertRule):
    """A thermal straggler: all ranks wait for its GPU in every step.

    Thresholds: ``share`` of the last ``seconds``.
    """

    name = "gpu.throttle"
    Thresholds = thresholds(seconds=60.0, share=0.5)

    def look(self, view: ClusterView, now: float) -> Iterator[Alert]:
        limits = self.thresholds
        for node, telemetry in watched(view):
            found: dict[str, list[str]] = {}
            for labels, series in telemetry.get("hw_gpu_throttle_reason", now):
                reason = labels.get("reason", "")
                values = series.within(now, limits.seconds)
                held = sum(values) >= limits.share * len(values) and len(values) >= 4
                if held and any(word in reason for word in HARMFUL):
                    found.setdefault(labels.get("gpu", ""), []).append(reason)
            for gpu, reasons in found.items():
                yield self.alert(
                    kind="slow",
                    host=node.node.host,
                    gpu=gpu,
                    text=f"is throttled: {', '.join(sorted(reasons))}",
                )

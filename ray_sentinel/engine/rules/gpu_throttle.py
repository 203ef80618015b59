"""gpu.throttle: a GPU's clocks are throttled because of heat or lack of power."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.rule import thresholds
from ray_sentinel.engine.telemetry.alert_rules import NodeAlertRule, WatchedPart
from ray_sentinel.model.alert import Alert
from ray_sentinel.model.thresholds import GPU_THROTTLED, THROTTLE_REASONS


class GpuThrottle(NodeAlertRule):
    """A thermal straggler: all ranks wait for its GPU in every step.

    Thresholds: ``share`` of the last ``seconds``.
    """

    name = "gpu.throttle"
    Thresholds = thresholds(seconds=GPU_THROTTLED.seconds, share=GPU_THROTTLED.limit)

    def find_alerts(self, part: WatchedPart) -> Iterator[Alert]:
        limits = self.thresholds
        for node, telemetry in part.nodes:
            found: dict[str, list[str]] = {}
            for labels, series in telemetry.get("hw_gpu_throttle_reason", part.now):
                reason = labels.get("reason", "")
                if reason not in THROTTLE_REASONS:
                    continue
                values = series.within(part.now, limits.seconds)
                if len(values) >= 4 and sum(values) >= limits.share * len(values):
                    found.setdefault(labels.get("gpu", ""), []).append(reason)
            for gpu, reasons in found.items():
                yield self.alert(
                    kind="slow",
                    host=node.node.host,
                    gpu=gpu,
                    text=f"is throttled: {', '.join(sorted(reasons))}",
                )

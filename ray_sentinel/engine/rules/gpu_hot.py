"""gpu.hot: a GPU is hotter than any GPU should be, whatever its peers show."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.rule import thresholds
from ray_sentinel.engine.telemetry.alert_rules import NodeAlertRule, WatchedPart
from ray_sentinel.model.alert import Alert
from ray_sentinel.model.thresholds import GPU_HOT


class GpuHot(NodeAlertRule):
    """If all cards are hot, the cooling of the rack has failed, and no card stands out.

    Thresholds: above ``celsius`` all through the last ``seconds``.
    """

    name = "gpu.hot"
    Thresholds = thresholds(seconds=GPU_HOT.seconds, celsius=GPU_HOT.limit)

    def find_alerts(self, part: WatchedPart) -> Iterator[Alert]:
        limits = self.thresholds
        for node, telemetry in part.nodes:
            for labels, series in telemetry.get("hw_gpu_temperature_celsius", part.now):
                # Nearly none is hot: the newest sample is looked at first.
                if series.last <= limits.celsius or not series.covers(part.now, limits.seconds):
                    continue
                if min(series.within(part.now, limits.seconds)) > limits.celsius:
                    text = f"is at {series.last:.0f} °C: {GPU_HOT.phrase}"
                    yield self.alert(text, host=node.node.host, gpu=labels.get("gpu", ""))

"""Rules on the state of single GPUs: heat, throttling, and the errors of their drivers."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.rule import thresholds
from ray_sentinel.engine.telemetry.alert_rules import NodeAlertRule, WatchedPart
from ray_sentinel.evidence import xids
from ray_sentinel.model.alert import Alert
from ray_sentinel.model.metrics import Event
from ray_sentinel.model.thresholds import GPU_HOT, GPU_THROTTLED, THROTTLE_REASONS


class GpuHot(NodeAlertRule):
    """A GPU is hotter than any GPU should be, whatever its peers show.

    If all cards are hot, the cooling of the rack has failed, and no card stands out.

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


class GpuThrottle(NodeAlertRule):
    """A GPU's clocks are throttled because of heat or lack of power.

    A thermal straggler: all ranks wait for its GPU in every step.

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


LOST = "kernel.gpu_lost"
FATAL = frozenset(map(str, (*xids.RESET, *xids.SERVICE, *xids.LINK)))
APPLICATION = frozenset(map(str, xids.APPLICATION))
ECC = frozenset({"48", "63", "64", "92", "94", "95"})


class GpuXid(NodeAlertRule):
    """The driver reports an error of a GPU (an Xid), or that it has fallen off the bus.

    Fatal Xids explain why a job stopped; others are shown with their meaning.

    Thresholds: ``seconds`` for which an error is shown.
    """

    name = "gpu.xid"
    Thresholds = thresholds(seconds=900.0)

    def find_alerts(self, part: WatchedPart) -> Iterator[Alert]:
        for node, telemetry in part.nodes:
            for at, event in telemetry.events:
                if part.now - at <= self.thresholds.seconds and event.kind in (LOST, "kernel.xid"):
                    yield self._alert(node.node.host, at, event)

    def _alert(self, host: str, at: float, event: Event) -> Alert:
        xid = event.attributes.get("xid", "79" if event.kind == LOST else "")
        gpu = event.attributes.get("gpu", "")
        pci = event.attributes.get("pci", "")
        lost = event.kind == LOST or xid == "79"
        fatal = lost or xid in FATAL
        what = "has fallen off the bus" if lost else f"Xid {xid}"
        if xid in APPLICATION:
            what += " (mostly the application's own fault)"
        elif xid in ECC and not lost:
            what += " (memory error)"
        return self.alert(
            severity=xids.severity(int(xid)) if xid.isdecimal() else "warning",
            kind="device-lost" if lost else "device-stuck" if fatal else "unknown",
            host=host,
            gpu=gpu or pci,
            text=f"{what}: {event.message[:200]}",
            since=at,
        )

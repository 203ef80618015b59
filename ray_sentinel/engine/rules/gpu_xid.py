"""gpu.xid: the driver reports an error of a GPU (an Xid), or that it has fallen off the bus."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.rule import thresholds
from ray_sentinel.engine.telemetry.alert_rules import NodeAlertRule, WatchedPart
from ray_sentinel.evidence import xids
from ray_sentinel.model.alert import Alert
from ray_sentinel.model.metrics import Event

LOST = "kernel.gpu_lost"
FATAL = frozenset(map(str, (*xids.RESET, *xids.SERVICE, *xids.LINK)))
APPLICATION = frozenset(map(str, xids.APPLICATION))
ECC = frozenset({"48", "63", "64", "92", "94", "95"})


class GpuXid(NodeAlertRule):
    """Fatal Xids explain why a job stopped; others are shown with their meaning.

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

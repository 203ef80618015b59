"""host.disk_full: a watched file system is (nearly) full."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.rule import thresholds
from ray_sentinel.engine.telemetry.alert_rules import NodeAlertRule, WatchedPart
from ray_sentinel.model.alert import Alert
from ray_sentinel.model.thresholds import DISK_FULL, DISK_FULL_BYTES


class HostDiskFull(NodeAlertRule):
    """The next checkpoint fails, and Ray stops placing work at 95 %.

    Thresholds: Less than ``share`` of it is free, and less than ``bytes``.
    """

    name = "host.disk_full"
    Thresholds = thresholds(share=DISK_FULL.limit, bytes=DISK_FULL_BYTES.limit)

    def find_alerts(self, part: WatchedPart) -> Iterator[Alert]:
        for node, telemetry in part.nodes:
            for labels, free in telemetry.get("hw_disk_free_bytes", part.now):
                mount = labels.get("mount", "")
                total = telemetry.one("hw_disk_total_bytes", part.now, mount=mount)
                share = free.last / total.last if total and total.last > 0 else 0.0
                if share < self.thresholds.share and free.last < self.thresholds.bytes:
                    yield self.alert(
                        host=node.node.host,
                        port=mount,
                        text=f"{mount}: {free.last / 1e9:.1f} GB free ({share:.1%})",
                    )

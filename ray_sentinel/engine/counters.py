"""Counters of devices that rise: by how much, since when, and against what is usual for them."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ray_sentinel.engine.alerting import watched
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.model.alert import Alert
from ray_sentinel.model.incident import FaultKind, Severity


class Rise(msgspec.Struct, frozen=True, kw_only=True):
    """One counter of one device over a window."""

    node: str
    host: str
    gpu: str
    port: str
    name: str
    """What is counted, in words."""
    count: float
    """By how much it rose within the window."""
    rate: float
    """The same, per second."""
    usual: float
    """Per second, before the window; 0 where that is not known."""
    since: float

    def alert(self, rule: str, severity: Severity, kind: FaultKind, text: str) -> Alert:
        """The alert about it."""
        return Alert(
            rule=rule,
            severity=severity,
            kind=kind,
            host=self.host,
            gpu=self.gpu,
            port=self.port,
            text=text,
            since=self.since,
        )


def rises(
    view: ClusterView, metrics: tuple[tuple[str, str], ...], now: float, seconds: float
) -> Iterator[Rise]:
    """Every counter of ``metrics`` (name, words) that rose within the last ``seconds``, on nodes
    with ranks. What it counted before it was first seen (since boot) is no rise."""
    for node, telemetry in watched(view):
        for metric, words in metrics:
            for labels, series in telemetry.get(metric, now):
                count = series.rise(now, seconds)
                if count <= 0:
                    continue
                gpu = labels.get("gpu", "")
                device, port = labels.get("device", ""), labels.get("port", "")
                yield Rise(
                    node=node.node.id,
                    host=node.node.host,
                    gpu=gpu,
                    port=f"{device}/{port}" if port else device,
                    name=words,
                    count=count,
                    rate=count / seconds,
                    usual=series.usual_rate(now, seconds) or 0.0,
                    since=series.rose_at(now, seconds) or now,
                )

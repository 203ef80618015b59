"""A job's GPUs beside each other: equal work should show equal values."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import msgspec

from ray_sentinel.engine.alerting import jobs_at_work
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.gpus import UTILISATION
from ray_sentinel.model.alert import Alert
from ray_sentinel.model.incident import FaultKind

LEAST_PEERS = 3
"""Other GPUs, without which there is no usual value."""
STEADY = 0.8
"""The part of a window's samples that must be on the same side: one noisy sensor is no outlier."""
AT_WORK = 0.3
"""Utilisation from which a GPU is at work at all."""


class Outlier(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU's value over a window and the median of its peers' in the same job."""

    job: str
    node: str
    host: str
    gpu: str
    value: float
    peers: float

    def alert(self, rule: str, text: str, kind: FaultKind = "unknown") -> Alert:
        """The alert about it."""
        return Alert(
            rule=rule,
            severity="warning",
            kind=kind,
            job=self.job,
            host=self.host,
            gpu=self.gpu,
            text=text,
        )


def outliers(
    view: ClusterView, metric: str, now: float, seconds: float, **labels: str
) -> Iterator[Outlier]:
    """Each GPU of each job at work, with its median over the last ``seconds``.

    GPUs that rest by design are left out, and values that do not stay on one side of the peers'.
    """
    for job in jobs_at_work(view, now):
        found: dict[tuple[str, str], list[float]] = {}
        for node_id, index, node in view.gpu_levels.places(view, job, now):
            series = node.one(metric, now, gpu=index, **labels)
            use = node.one(UTILISATION, now, gpu=index)
            if series is None or not series.covers(now, seconds):
                continue
            if use is not None and (use.level(now, seconds) or 0.0) < AT_WORK:
                continue
            found[node_id, index] = series.within(now, seconds)
        medians = {key: statistics.median(values) for key, values in found.items()}
        if len(medians) <= LEAST_PEERS:
            continue
        for key, values in found.items():
            peers = statistics.median(value for other, value in medians.items() if other != key)
            side = sum((value < peers) == (medians[key] < peers) for value in values)
            if side >= STEADY * len(values):
                yield Outlier(
                    job=job.job,
                    node=key[0],
                    host=view.host_of(key[0]),
                    gpu=key[1],
                    value=medians[key],
                    peers=peers,
                )

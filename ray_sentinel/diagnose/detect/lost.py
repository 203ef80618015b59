"""Hosts and GPUs whose series end while the others go on."""

from __future__ import annotations

import msgspec
import numpy as np

from ray_sentinel.diagnose import stats
from ray_sentinel.diagnose.anomaly import Anomaly
from ray_sentinel.diagnose.case import Case

GONE_SECONDS = 60.0
"""Silence of a source at the end that counts as its loss."""


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """A host, or one GPU of it, that went away and did not return."""

    host: str
    gpu: str = ""
    at: float
    """Its last sample."""
    anomaly: Anomaly


def hosts(case: Case) -> tuple[Lost, ...]:
    """Hosts whose series all end well before those of most others, the first one first.

    A target that is scraped and answers nothing (``up`` 0) has gone as well.
    """
    if len(case.hosts) < 2:
        return ()
    cells = max(2, int(np.ceil(GONE_SECONDS / case.cell)))
    lasts = np.array([stats.last_index(row) for row in case.present], dtype=np.float64)
    end = float(np.median(lasts))
    found = []
    for host, last in zip(case.hosts, lasts, strict=True):
        if end - last < cells:
            continue
        at = float(case.times[int(last)])
        found.append(
            Lost(
                host=host,
                at=at,
                anomaly=Anomaly(
                    kind="host.lost",
                    text=f"{host}: all its series end, while those of the others go on",
                    at=at,
                    until=case.line.end,
                    uncertainty=2 * case.cell,
                    host=host,
                    metric="up",
                    promql=f'up{{host="{host}"}}',
                ),
            )
        )
    return tuple(sorted(found, key=lambda one: one.at))


def gpus(case: Case) -> tuple[Lost, ...]:
    """GPUs whose power series ends while other GPUs of the same host go on."""
    panel = case.view.panel("gpu.power")
    cells = max(3, int(np.ceil(GONE_SECONDS / case.cell)))
    found = []
    for host in panel.hosts:
        own = panel.of(host)
        if len(own.rows) < 2:
            continue
        lasts = np.array([stats.last_index(~np.isnan(row)) for row in own.values], dtype=float)
        end = float(np.median(lasts))
        for row, last in zip(own.rows, lasts, strict=True):
            if end - last < cells or not row.gpu:
                continue
            at = float(case.times[int(last)])
            anomaly = Anomaly(
                kind="gpu.lost",
                text=f"GPU {row.gpu} of {host} no longer answers, while its neighbours do",
                at=at,
                until=case.line.end,
                uncertainty=2 * case.cell,
                host=host,
                gpu=row.gpu,
                metric=panel.metric,
                promql=panel.promql(row),
            )
            found.append(Lost(host=host, gpu=row.gpu, at=at, anomaly=anomaly))
    return tuple(sorted(found, key=lambda one: one.at))

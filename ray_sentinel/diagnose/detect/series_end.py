"""Hosts and GPUs whose series end while the others go on."""

from __future__ import annotations

import msgspec
import numpy as np

from ray_sentinel.diagnose import stats
from ray_sentinel.diagnose.anomaly import Anomaly
from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.series import Bools

GONE_SECONDS = 60.0
"""Seconds of silence at the end after which a source counts as lost, if it missed enough samples
(``MISSED``)."""
MISSED = 2
"""Number of its own usual intervals that the silence must last, too: some sources are read more
rarely than others."""


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """A host, or one GPU of it, that disappeared and did not return."""

    host: str
    gpu: str = ""
    at: float
    """The time of its last sample in Unix seconds."""
    anomaly: Anomaly


def hosts(case: JobCase) -> tuple[Lost, ...]:
    """Hosts whose series all end well before those of most others, the first one first.

    A target that is scraped without success (``up`` 0) has disappeared as well.
    """
    if len(case.hosts) < 2:
        return ()
    lasts = np.array([stats.last_index(row) for row in case.present], dtype=np.float64)
    end = float(np.median(lasts))
    found = []
    for host, known, last in zip(case.hosts, case.present, lasts, strict=True):
        usual = _interval(known)
        if end - last < max(MISSED * usual, np.ceil(GONE_SECONDS / case.cell)):
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
                    uncertainty=(1 + usual) * case.cell,
                    host=host,
                    metric="up",
                    promql=f'up{{host="{host}"}}',
                ),
            )
        )
    return tuple(sorted(found, key=lambda one: one.at))


def _interval(known: Bools) -> float:
    """The usual number of cells between two samples of a source (T,).

    Each gap counts by its length: a panel fills the cell after a sample of a rare source.
    """
    gaps = np.sort(np.diff(np.flatnonzero(known)))
    if not gaps.size:
        return 1.0
    covered = np.cumsum(gaps)
    return float(gaps[np.searchsorted(covered, covered[-1] / 2)])


def gpus(case: JobCase) -> tuple[Lost, ...]:
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
                uncertainty=2 * case.cell,
                host=host,
                gpu=row.gpu,
                metric=panel.metric,
                promql=panel.promql(row),
            )
            found.append(Lost(host=host, gpu=row.gpu, at=at, anomaly=anomaly))
    return tuple(sorted(found, key=lambda one: one.at))

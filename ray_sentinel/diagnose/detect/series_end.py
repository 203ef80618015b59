"""Hosts and GPUs whose series end while the others go on."""

from __future__ import annotations

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


def hosts(case: JobCase) -> tuple[Anomaly, ...]:
    """Hosts whose series all end well before those of most others, the first one first, each at the
    time of its last sample.

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
        found.append(
            Anomaly(
                kind="host.lost",
                text=f"{host}: all its series end, while those of the others go on",
                at=float(case.times[int(last)]),
                uncertainty=(1 + usual) * case.cell,
                host=host,
                metric="up",
                promql=f'up{{host="{host}"}}',
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


def gpus(case: JobCase) -> tuple[Anomaly, ...]:
    """GPUs whose power series ends while other GPUs of the same host go on, each at the time of its
    last sample."""
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
            text = f"GPU {row.gpu} of {host} no longer answers, while its neighbours do"
            found.append(
                Anomaly.of_row(
                    panel, row, "gpu.lost", text, int(last), 0.0, uncertainty=2 * case.cell
                )
            )
    return tuple(sorted(found, key=lambda one: one.at))

"""Errors that a host's network cards count: bad frames, checksums, aborted transmissions.

These cards carry storage and control traffic (and RoCE's own errors show in the RDMA counters):
they name a card or cable to look at, and are no cause of slow steps by themselves.
"""

from __future__ import annotations

import numpy as np

from ray_sentinel.diagnose import stats
from ray_sentinel.diagnose.anomaly import Anomaly, at_row
from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.panel import SeriesPanel

MANY = 10.0
"""Errors within the job: fewer are every card's ..."""
OVER_PEERS = 5.0
"""... and so many times what the other cards have."""
LASTING_SECONDS = 300.0
"""Errors in less time are an event (a link that was reset), no bad card."""


def find(case: JobCase) -> tuple[Anomaly, ...]:
    """Cards whose errors went on for minutes and clearly exceed the others', the worst first."""
    found = [
        anomaly
        for key in ("net.rx_errors", "net.tx_errors")
        for anomaly in _cards(case, case.view.panel(key), key)
    ]
    return tuple(sorted(found, key=lambda anomaly: -anomaly.size))


def _cards(case: JobCase, panel: SeriesPanel, key: str) -> list[Anomaly]:
    if panel.empty:
        return []
    grown = panel.increases()
    totals = np.nansum(grown, axis=1)
    least = max(MANY, OVER_PEERS * stats.background(totals))
    found = []
    for row, rises, total in zip(panel.rows, grown, totals, strict=True):
        with np.errstate(invalid="ignore"):
            cells = np.flatnonzero(rises > 0)
        if total < least or case.times[cells[-1]] - case.times[cells[0]] < LASTING_SECONDS:
            continue
        count = f"{total:,.0f} {panel.quantity.title}"
        text = f"{row.unit} of {row.host}: {count} within the job"
        first, last = int(cells[0]), int(cells[-1])
        found.append(at_row(panel, row, key.replace("_", "-"), text, first, last, float(total)))
    return found

"""Trouble of TCP and of network cards, where the collectives run over them.

If RDMA carries the collectives, TCP is only storage and control traffic, and its retransmits slow
no step. If there is no RDMA (none is recorded, its ports carry nothing, or the log says that NCCL
uses sockets), they are suspects like a bad link.
"""

from __future__ import annotations

import numpy as np

from ray_sentinel.diagnose import stats
from ray_sentinel.diagnose.anomaly import Anomaly
from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.detect import rdma
from ray_sentinel.diagnose.series import Bools
from ray_sentinel.model.diagnosis import CauseLocation
from ray_sentinel.model.thresholds import NETWORK_ERRORS_BACKGROUND, TCP_BACKGROUND

CARRIES_BYTES = 1e6
"""Bytes per second and port: less is not a collective's traffic. It tells what is used, not what is
in trouble."""


class TcpTrouble(Anomaly, frozen=True, kw_only=True):
    """One host, or one of its cards, in trouble ("tcp-retransmits" or "nic-errors"); the size is
    the greatest rate of retransmits or errors per second."""

    cells: Bools
    """The cells (T,) in which the trouble lasted."""

    @property
    def culprit(self) -> CauseLocation:
        """The host, or its card, as a culprit."""
        return CauseLocation(host=self.host, device=self.unit, reason=self.text)


def carry(case: JobCase) -> bool:
    """Whether the collectives run over TCP, as far as that can be known."""
    if case.logs.transport:
        return case.logs.transport == "socket"
    moved = [case.view.panel(key) for key in ("rdma.tx", "rdma.rx")]
    known = [panel for panel in moved if not panel.empty]
    if known and case.training.any():
        return not any(
            stats.middle(panel.rates()[:, case.training]) > CARRIES_BYTES for panel in known
        )
    return all(case.view.panel(key).empty for key in ("rdma.retx", "rdma.port", "rdma.ack_timeout"))


def find(case: JobCase) -> tuple[TcpTrouble, ...]:
    """Hosts and cards in trouble outside checkpoints, the worst first; empty if RDMA carries the
    collectives."""
    if not carry(case):
        return ()
    found = [
        *_of(case, "tcp.retx", "tcp-retransmits", TCP_BACKGROUND.limit),
        *_of(case, "net.rx_errors", "nic-errors", NETWORK_ERRORS_BACKGROUND.limit),
        *_of(case, "net.tx_errors", "nic-errors", NETWORK_ERRORS_BACKGROUND.limit),
    ]
    return tuple(sorted(found, key=lambda one: -one.size))


def _of(case: JobCase, key: str, kind: str, least: float) -> list[TcpTrouble]:
    panel = case.view.panel(key)
    if panel.empty:
        return []
    rates = np.where(case.checkpoint_cells, np.nan, panel.rates())
    limits = rdma.limits(rates, least, case.training)
    found = []
    for row, rate, limit in zip(panel.rows, rates, limits, strict=True):
        above = rate > limit
        cells = rdma.lasting(case, above, rate, float(limit), panel.step)
        if not cells.any():
            continue
        peak = float(np.nanmax(rate[cells]))
        where = f"{row.unit} of {row.host}" if row.unit else row.host
        text = f"{where}: {panel.quantity.title} up to {peak:,.0f}/s"
        first = int(np.flatnonzero(cells)[0])
        found.append(TcpTrouble.of_row(panel, row, kind, text, first, peak, cells=cells))
    return found

"""Trouble on RDMA ports: what counts is growth within the job, never the totals since boot."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from ray_sentinel.diagnose import stats
from ray_sentinel.diagnose.anomaly import Anomaly
from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.panel import SeriesOwner, SeriesPanel
from ray_sentinel.diagnose.series import Bools, Floats
from ray_sentinel.model.diagnosis import CauseLocation
from ray_sentinel.model.thresholds import (
    OVER_PEERS,
    RDMA_ACK_TIMEOUTS_OVER_PEERS,
    RDMA_BACKGROUND,
    RDMA_LINK_DOWNS,
    RDMA_RETRANSMITS,
    RDMA_RETRIES_EXCEEDED,
)

JOIN_SECONDS = 180.0
"""Seconds; runs above the limit that are closer together count as one."""
_VOLUME = {"retx": "RDMA retransmits", "cnp": "congestion notifications"}
_ERRORS = {
    "retry_exceeded": RDMA_RETRIES_EXCEEDED,
    "ack_timeout": RDMA_ACK_TIMEOUTS_OVER_PEERS,
    "cqe_err": RDMA_ACK_TIMEOUTS_OVER_PEERS,
    "link_downed": RDMA_LINK_DOWNS,
}
CONGESTED = 3
"""The priority of a port with retransmits or congestion notifications and no, or few, errors."""
_DOWN = {"port", "link_downed"}
"""Kinds of trouble that are of the port itself, or of its cable."""


class _Sign(Anomaly, frozen=True, kw_only=True):
    """One kind of trouble of one port."""

    cells: Bools
    """The cells (T,) in which the port had it."""


class PortTrouble(msgspec.Struct, frozen=True, kw_only=True):
    """One port of one host, and everything that went wrong on it."""

    host: str
    unit: str
    """The port, as "device/port"."""
    kinds: tuple[str, ...]
    """The kinds of trouble: retx, cnp, retry_exceeded, ack_timeout, cqe_err, link_downed and
    port."""
    priority: int
    """The priority: 1 for a port that is down, or retry exhaustion that no such port explains, 2
    for retransmits with errors, 3 for congestion or few errors."""
    cells: Bools
    """The cells (T,) in which the port was in trouble."""
    anomalies: tuple[Anomaly, ...]
    peak: float = 0.0
    """The greatest rate of retransmits, in packets per second."""

    @property
    def culprit(self) -> CauseLocation:
        """The port as a culprit."""
        device, _, port = self.unit.partition("/")
        reason = "; ".join(anomaly.text for anomaly in self.anomalies)
        return CauseLocation(host=self.host, device=device, port=port, reason=reason)

    @property
    def at(self) -> float:
        """When it began."""
        return min(anomaly.at for anomaly in self.anomalies)


def find(case: JobCase) -> tuple[PortTrouble, ...]:
    """Troubled ports, the worst first; congestion notices alone are in ``congested``."""
    return tuple(trouble for trouble in case.once(_all) if trouble.kinds != ("cnp",))


def congested(case: JobCase) -> tuple[PortTrouble, ...]:
    """Ports with congestion notifications above background."""
    return tuple(trouble for trouble in case.once(_all) if "cnp" in trouble.kinds)


def _all(case: JobCase) -> tuple[PortTrouble, ...]:
    ports: dict[tuple[str, str], dict[str, _Sign]] = {}
    for sign in (*_volume(case), *_errors(case), *_ports(case.view.panel("rdma.port"))):
        kinds = ports.setdefault((sign.host, sign.unit), {})
        kinds[sign.kind.removeprefix("rdma.")] = sign
    troubles = _without_echoes(case, [_trouble(*port, kinds) for port, kinds in ports.items()])
    return tuple(sorted(troubles, key=lambda one: (one.priority, -one.peak, one.at)))


def _without_echoes(case: JobCase, troubles: list[PortTrouble]) -> list[PortTrouble]:
    """Ports whose own link was well, while another's was down, gave up what they sent to that one:
    they have the priority of errors, not of a lost link."""
    down = [trouble for trouble in troubles if _DOWN & set(trouble.kinds)]
    if not down:
        return troubles
    spread = _cells(case, JOIN_SECONDS)
    lost = np.any([trouble.cells for trouble in down], axis=0)
    near = np.convolve(lost, np.ones(2 * spread + 1), mode="same") > 0
    return [
        msgspec.structs.replace(trouble, priority=2)
        if trouble.priority == 1 and trouble not in down and near[trouble.cells].all()
        else trouble
        for trouble in troubles
    ]


def _volume(case: JobCase) -> Iterator[_Sign]:
    for key, title in _VOLUME.items():
        panel = case.view.panel(f"rdma.{key}")
        if panel.empty:
            continue
        rates = panel.rates()
        bounds = limits(rates, RDMA_BACKGROUND.limit, case.training)
        above = rates > bounds[:, None]
        for row, flags, rate, bound in zip(panel.rows, above, rates, bounds, strict=True):
            cells = lasting(case, flags, rate, float(bound), panel.step)
            if cells.any():
                yield _sign(panel, row, title, cells, rate)


def limits(rates: Floats, least: float, training: Bools) -> Floats:
    """(S,) packets per second, ``least`` or more, above which a port or host is troubled.

    Measured against its peers at their busiest or against its own quiet times in the training,
    whichever is lower: one bad port has quiet peers, a congested fabric had quiet times. Before and
    after the training nothing is sent, which says nothing of what is usual.
    """
    peers = stats.background(stats.quantile(rates, 0.95, axis=1))
    own = stats.quantile(rates[:, training] if training.any() else rates, 0.25, axis=1)
    quiet = np.fmin(np.where(np.isfinite(own), own, 0.0), peers if rates.shape[0] > 1 else np.inf)
    return np.maximum(least, OVER_PEERS * quiet)


def lasting(case: JobCase, flags: Bools, rate: Floats, limit: float, step: float) -> Bools:
    """Runs of ``flags`` (T,), rates above the limit, that last with a mean above it too, or that
    affect many packets: bursts of a few dozen occur in every network."""
    out = np.zeros_like(flags)
    for left, right in stats.runs(stats.joined(flags, _cells(case, JOIN_SECONDS))):
        above = int(flags[left:right].sum())
        lasts = above * step >= RDMA_BACKGROUND.seconds and np.nanmean(rate[left:right]) >= limit
        # What is within the limit is background, however long a run of single peaks makes it.
        excess = np.nansum((rate[left:right] - limit)[flags[left:right]]) * step
        if above >= 2 and (lasts or RDMA_RETRANSMITS.crossed(excess)):
            out[left:right] = True
    return out


def _errors(case: JobCase) -> Iterator[_Sign]:
    for key, limit in _ERRORS.items():
        panel = case.view.panel(f"rdma.{key}")
        grown = panel.increases()
        totals = np.nansum(grown, axis=1)
        # Where most ports count a few, a few are background.
        peers = OVER_PEERS * stats.background(totals)
        for row, rises, total in zip(panel.rows, grown, totals, strict=True):
            if total <= peers or not limit.crossed(total):
                continue
            cells = stats.joined(_unseen_before(rises > 0, rises), _cells(case, JOIN_SECONDS))
            yield _sign(panel, row, panel.quantity.title, cells, rises / panel.step)


def _ports(panel: SeriesPanel) -> Iterator[_Sign]:
    """Ports that went down; one that never was up is not in use."""
    for row, values in zip(panel.rows, panel.values, strict=True):
        down = values < 0.5
        if not down.any() or not (values > 0.5).any():
            continue
        first = int(np.flatnonzero(values > 0.5)[0])
        down[:first] = False
        if not down.any():
            continue
        left, right = stats.runs(down)[0]
        last = stats.last_index(down) or left
        down = _unseen_before(down, values)
        unseen = left - int(np.flatnonzero(down)[0])
        back = last + 1 < down.size and bool(np.isfinite(values[last + 1]))
        then = "came back" if back else "stayed down"
        times = _times_down(values, first)
        often = f" {times} times," if times > 1 else ""
        text = f"RDMA port {row.unit} of {row.host} went down{often} and {then}"
        seconds = float((right - left) * panel.step)
        yield _Sign.of_row(
            panel, row, "rdma.port", text, left - unseen, seconds, cells=down,
            uncertainty=(1 + unseen) * panel.step,
        )  # fmt: skip


def _times_down(values: Floats, first: int) -> int:
    """How often the port was read as down after it had been read as up."""
    known = values[first:][np.isfinite(values[first:])]
    return int(((known[1:] < 0.5) & (known[:-1] >= 0.5)).sum())


def _unseen_before(flags: Bools, values: Floats) -> Bools:
    """``flags`` (T,), and the cells before each run of them in which nothing was read: it may have
    begun there."""
    out: Bools = flags.copy()
    unread = ~np.isfinite(values)
    for left, _ in stats.runs(flags):
        first = left
        while first > 0 and unread[first - 1]:
            first -= 1
        if first > 0:
            out[first:left] = True
    return out


def _sign(panel: SeriesPanel, row: SeriesOwner, title: str, cells: Bools, rate: Floats) -> _Sign:
    peak, total = float(np.nanmax(rate[cells])), float(np.nansum(rate[cells]) * panel.step)
    first = int(np.flatnonzero(cells)[0])
    text = (
        f"{title} on {row.unit or 'RDMA'} of {row.host}: {total:,.0f} within the job, "
        f"up to {peak:,.1f}/s"
    )
    return _Sign.of_row(panel, row, panel.quantity.key, text, first, peak, cells=cells)


def _trouble(host: str, unit: str, kinds: dict[str, _Sign]) -> PortTrouble:
    if (_DOWN | {"retry_exceeded"}) & kinds.keys():
        priority = 1
    elif "retx" in kinds and {"ack_timeout", "cqe_err"} & kinds.keys():
        priority = 2
    else:
        priority = CONGESTED
    return PortTrouble(
        host=host,
        unit=unit,
        kinds=tuple(kinds),
        priority=priority,
        cells=np.any([sign.cells for sign in kinds.values()], axis=0),
        # What happened to the port itself comes first of what was seen at the same time.
        anomalies=tuple(kinds[kind] for kind in sorted(kinds, key=lambda kind: kind not in _DOWN)),
        peak=kinds["retx"].size if "retx" in kinds else 0.0,
    )


def _cells(case: JobCase, seconds: float) -> int:
    return max(int(np.ceil(seconds / case.cell)), 1)

"""A driver that hangs: the exporter's cycle jumps to its time-out, and GPU series have holes.

The kernel's error-reporting path hangs while the compute path goes on: monitoring suffers, training
does not.
"""

from __future__ import annotations

import msgspec
import numpy as np

from ray_sentinel.diagnose import stats
from ray_sentinel.diagnose.anomaly import Anomaly
from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.detect import blocked
from ray_sentinel.diagnose.series import Bools

SLOW_SECONDS = 5.0
SLOW_FACTOR = 4.0
"""How many times its usual length a slow cycle of the exporter takes, at least; it must also take
longer than ``SLOW_SECONDS``."""
LEAST_SLOW = 3
"""Least number of slow cycles: one or two are normal."""
HOLES = 0.05
"""Share of the GPU samples between the first and the last that must be missing to be reported."""


class DriverTrouble(msgspec.Struct, frozen=True, kw_only=True):
    """Signs of a hanging driver on one host."""

    host: str
    at: float
    dstate: float
    """Number of processes in D state at the end, above the level at the start."""
    wchan: str
    anomalies: tuple[Anomaly, ...]


def find(case: JobCase) -> tuple[DriverTrouble, ...]:
    """Hosts with at least two of the three signs, or with D-state processes piling up."""
    found = []
    for host in case.hosts:
        signs = [sign for sign in (_cycles(case, host), _holes(case, host), _dstate(case, host))
                 if sign is not None]  # fmt: skip
        dstate = next((sign for sign in signs if sign.kind == "host.dstate"), None)
        if len(signs) < 2 and dstate is None:
            continue
        found.append(
            DriverTrouble(
                host=host,
                at=min(sign.at for sign in signs),
                dstate=dstate.size if dstate else 0.0,
                wchan=dstate.unit if dstate else "",
                anomalies=tuple(sorted(signs, key=lambda sign: sign.at)),
            )
        )
    return tuple(sorted(found, key=lambda one: one.at))


def _cycles(case: JobCase, host: str) -> Anomaly | None:
    panel = case.view.panel("scrape.duration")
    own = panel.of(host)
    if own.empty:
        return None
    peers = stats.middle(panel.values)
    usual = float(stats.quantile(own.values, 0.1))
    slow = (own.values[0] > SLOW_SECONDS) & (own.values[0] > SLOW_FACTOR * min(usual, peers))
    if slow.sum() < LEAST_SLOW or peers > SLOW_SECONDS:
        return None
    first = int(np.flatnonzero(slow)[0])
    length = stats.middle(own.values[0][slow])
    text = (
        f"{host}: {int(slow.sum())} exporter cycles of {length:.0f} s (usually {usual:.1f} s): a "
        "plugin runs into its time-out"
    )
    return Anomaly.of_row(
        own, own.rows[0], "host.slow-cycles", text, first, float(slow.sum()), uncertainty=case.cell
    )


def _holes(case: JobCase, host: str) -> Anomaly | None:
    panel = case.view.panel("gpu.power")
    own = panel.of(host)
    if own.empty or len(panel.hosts) < 2:
        return None
    missing: Bools = np.asarray(np.isnan(own.values).all(axis=0))
    # Where all hosts have a hole it is Prometheus that was away.
    missing = missing & ~np.isnan(panel.values).all(axis=0)
    known = np.flatnonzero(~np.isnan(own.values).all(axis=0))
    if not known.size:
        return None
    inner = missing[known[0] : known[-1] + 1]
    share = float(inner.mean())
    if share < HOLES or len(stats.runs(inner)) < 2:
        return None
    first = int(known[0] + np.flatnonzero(inner)[0])
    return Anomaly(
        kind="gpu.holes",
        text=f"{host}: {share:.0%} of its GPU samples are missing, in {len(stats.runs(inner))} "
        "holes",
        at=float(case.times[first]),
        uncertainty=case.cell,
        host=host,
        size=share,
        metric=panel.metric,
        promql=own.promql(own.rows[0]),
    )


def _dstate(case: JobCase, host: str) -> Anomaly | None:
    """The largest pile in one function, but for those that wait for something else than a
    driver."""
    own = [
        one
        for one in case.once(blocked.find)
        if one.host == host and one.awaited in {"driver", "unknown"}
    ]
    return max(own, key=lambda one: one.size) if own else None

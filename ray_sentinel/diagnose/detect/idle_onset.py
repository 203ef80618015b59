"""Hosts whose GPUs went idle for good well before those of the others.

Without a log, this distinguishes a job that lost a task from one that was ended: after the end all
are idle alike, but the one that died was idle first.
"""

from __future__ import annotations

import msgspec
import numpy as np

from ray_sentinel.diagnose import stats
from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.detect.levels import HIGH_UTILISATION
from ray_sentinel.diagnose.series import Bools, Floats

EARLY_SECONDS = 60.0
EARLY_CELLS = 4
"""Number of cells that a host which went idle early must be before most others; it must also be
``EARLY_SECONDS`` before them."""
LAG_CELLS = 2
"""Number of cells allowed between a host's idle onset and the last step."""
TAIL_CELLS = 3
"""Least number of cells at the end in which all are idle."""


class Rested(msgspec.Struct, frozen=True, kw_only=True):
    """The hosts that went idle first, when they did, and when the others did."""

    hosts: tuple[str, ...]
    at: float
    others_at: float


def first(case: JobCase) -> Rested | None:
    """A minority that went idle first, and the job's steps with it; None if all went idle together,
    or some never did.

    If one of two goes idle first, the other may have had something left to do: nobody is named.
    """
    lasts = {host: stats.last_index(cells) for host, cells in _busy(case).items()}
    known = {host: last for host, last in lasts.items() if last is not None}
    if len(known) < len(lasts) or len(known) < 3:
        return None
    ends = np.array(list(known.values()))
    usual = int(np.median(ends))
    ended = case.cell_of(case.line.end)
    if ended - ends.max() < TAIL_CELLS:
        return None
    gap = max(EARLY_CELLS, int(np.ceil(EARLY_SECONDS / case.cell)))
    early = tuple(host for host, last in known.items() if usual - last >= gap)
    together = int((np.abs(ends - usual) <= EARLY_CELLS).sum())
    if not early or len(early) >= len(known) / 2 or len(early) + together < len(known):
        return None
    at = float(case.times[max(known[host] for host in early)])
    if not _stopped_with(case, at):
        return None
    return Rested(hosts=early, at=at, others_at=float(case.times[usual]))


def _stopped_with(case: JobCase, at: float) -> bool:
    """Whether steps ended when those hosts went idle: a host without which the job went on was
    done, and did not fail."""
    last = case.line.last_progress
    if not case.line.trained or last is None:
        return False
    step = case.line.step_seconds
    most = max(EARLY_SECONDS, 2 * step if np.isfinite(step) else 0.0)
    return -LAG_CELLS * case.cell <= at - last <= most + LAG_CELLS * case.cell


def _busy(case: JobCase) -> dict[str, Bools]:
    """Host → cells (T,) in which any of its GPUs computes or busy-waits."""
    util, power = case.view.panel("gpu.util"), case.view.panel("gpu.power")
    if util.rows:
        busy = zip(util.rows, util.values > HIGH_UTILISATION, strict=True)
    else:
        busy = zip(power.rows, map(_above, power.values), strict=True)
    found: dict[str, Bools] = {}
    for row, high in busy:
        found[row.host] = high | found.get(row.host, high)
    return found


def _above(power: Floats) -> Bools:
    """The cells in which a host's power is nearer to its greatest than to its least."""
    low, high = (float(stats.quantile(power, share)) for share in (0.02, 0.9))
    return np.asarray(power > (low + high) / 2)

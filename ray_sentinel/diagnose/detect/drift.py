"""GPUs that leave their peers: hotter, slower clocked, weaker.

A job drives all its GPUs alike, so what most of them show at a moment is due to the load; what
remains after subtracting it is the card's own. "Most" is the quartile on the healthy side, not the
median, so that half of the cards (one of two hosts) may be affected together. A card's usual offset
is its own level at first.

What all cards do together cannot show in a comparison with peers: it is measured against their own
past (``all_hot``, ``all_clocks``), and belongs to what the hosts share.
"""

from __future__ import annotations

import itertools

import msgspec
import numpy as np

from ray_sentinel.diagnose import stats
from ray_sentinel.diagnose.anomaly import Anomaly
from ray_sentinel.diagnose.case import JobCase, everywhere
from ray_sentinel.diagnose.panel import SeriesPanel
from ray_sentinel.diagnose.series import Bools, Floats
from ray_sentinel.diagnose.shifts import Shift, find_shifts
from ray_sentinel.model.thresholds import (
    GPU_CLOCK_DROP,
    GPU_CLOCKS_DROP,
    GPU_HOTTER_THAN_USUAL,
    GPU_POWER_DROP,
    GPU_WARMER_THAN_USUAL,
)

SMOOTH_SECONDS = 60.0
"""Seconds over which medians are taken: one late cell is not a drift."""
RESTING_UTILISATION = 20.0
"""Per cent of utilisation below which a GPU has nothing to do. Lower than GPU_AT_WORK: a cell of an
archive averages the pauses of a step, a save or an evaluation in."""
WARM_UP_SECONDS = 120.0
"""Seconds after a rest for which a card's temperature does not yet follow its load."""
FIRST_SHARE = 0.1
"""Share of the time for which the first level must last to be the usual one."""


class Drift(Anomaly, frozen=True, kw_only=True):
    """One GPU that moved away from the others ("gpu.hot", "gpu.clock" or "gpu.power"); the size is
    signed, in the quantity's unit (°C, MHz, W)."""

    peak: float
    """The extreme value while the drift lasted."""
    cells: Bools

    @property
    def card(self) -> tuple[str, str]:
        """Host and GPU."""
        return self.host, self.gpu


def working(case: JobCase, panel: SeriesPanel) -> Bools:
    """(S, T) where each card of ``panel`` has work, as far as its utilisation is recorded.

    A spare node, or the rollout nodes of a job whose trainers work, show values without any load.
    Where nobody has work, all cards are comparable again.
    """
    rests = resting(case, panel)
    working: Bools = ~rests | rests.all(axis=0)
    return working


def resting(case: JobCase, panel: SeriesPanel) -> Bools:
    """(S, T) where each card of ``panel`` is known to have no work."""
    util = case.view.panel("gpu.util")
    use = {(row.host, row.gpu): values for row, values in zip(util.rows, util.values, strict=True)}
    rests = np.zeros(panel.values.shape, dtype=bool)
    for index, row in enumerate(panel.rows):
        values = use.get((row.host, row.gpu), use.get((row.host, "")))
        if values is not None:
            rests[index] = values < RESTING_UTILISATION
    return rests


def _since_last(marked: Bools) -> Floats:
    """(S, T) cells since the last marked one; infinite before the first."""
    index = np.arange(marked.shape[1], dtype=float)
    return index - np.maximum.accumulate(np.where(marked, index, -np.inf), axis=1)


def residual(case: JobCase, panel: SeriesPanel, sign: float) -> Floats:
    """(S, T) each card's own deviation in steady cells; NaN elsewhere."""
    values = np.where(case.steady, panel.values, np.nan)
    if panel.quantity.key == "gpu.temp":  # an idle card cools, and warms up slowly
        settled = _since_last(~working(case, panel)) * case.cell > WARM_UP_SECONDS
        values = np.where(settled, values, np.nan)
    if len(panel.rows) < 2:
        return values
    return values - stats.quantile(values, 0.25 if sign > 0 else 0.75, axis=0)


def hot(case: JobCase) -> tuple[Drift, ...]:
    """GPUs that grew hotter than their load explains."""
    return _drifts(case, "gpu.temp", "hot", least=GPU_HOTTER_THAN_USUAL.limit, sign=1.0)


def warm(case: JobCase) -> tuple[Drift, ...]:
    """GPUs that grew a little hotter: reported only if the clock fell at the same time."""
    return _drifts(case, "gpu.temp", "hot", least=GPU_WARMER_THAN_USUAL.limit, sign=1.0)


def clocks(case: JobCase) -> tuple[Drift, ...]:
    """GPUs whose core clock fell."""
    usual = stats.middle(case.view.panel("gpu.clock").values)
    least = GPU_CLOCK_DROP.limit * usual if np.isfinite(usual) else 1e9
    found = _drifts(case, "gpu.clock", "clock", least=least, sign=-1.0)
    # A GPU without work lowers its clock by itself.
    return tuple(one for one in found if not _rests(case, one))


def all_hot(case: JobCase) -> Drift | None:
    """The GPUs of nearly all hosts grew hotter together; ``host`` and ``gpu`` are empty."""
    return _together(case, "gpu.temp", "hot", least=GPU_HOTTER_THAN_USUAL.limit, sign=1.0)


def all_clocks(case: JobCase) -> Drift | None:
    """The core clocks on nearly all hosts fell together; ``host`` and ``gpu`` are empty."""
    usual = stats.middle(np.where(case.steady, case.view.panel("gpu.clock").values, np.nan))
    if not np.isfinite(usual):
        return None
    least = GPU_CLOCKS_DROP.limit * usual
    return _together(case, "gpu.clock", "clock", least=least, sign=-1.0)


def _together(case: JobCase, key: str, kind: str, *, least: float, sign: float) -> Drift | None:
    panel = case.view.panel(key)
    if len(panel.hosts) < 2 or case.steady.sum() < 8:
        return None
    hosts, values = panel.per_host(stats.median)
    values = np.where(case.steady, values, np.nan)
    middle = stats.median(values, axis=0)
    calm = stats.rolling_median(middle, max(5, int(SMOOTH_SECONDS / case.cell)))
    away = _away(case, np.where(np.isfinite(middle), calm, np.nan), least, sign)
    if away is None:
        return None
    inside, outside = away.cells & case.steady, ~away.cells & case.steady
    moved = sign * (stats.median(values[:, inside], 1) - stats.median(values[:, outside], 1))
    if not everywhere(int((moved >= 0.5 * least).sum()), len(hosts)):
        return None
    extreme, where = (stats.largest, "up") if sign > 0 else (stats.smallest, "down")
    peak, usual = float(extreme(middle[inside])), stats.middle(middle[outside])
    return Drift(
        kind=f"gpu.{kind}",
        text=f"the GPUs of all {len(hosts)} hosts: {panel.quantity.title} {where} by "
        f"{away.worst:.0f} {panel.quantity.unit} (usually {usual:.0f}, then {where} to {peak:.0f} "
        f"{panel.quantity.unit})",
        at=float(case.times[away.first]),
        uncertainty=away.doubt,
        size=sign * away.worst,
        metric=panel.metric,
        promql=panel.promql(),
        peak=peak,
        cells=away.cells,
    )


def _rests(case: JobCase, drift: Drift) -> bool:
    """Whether the GPU had nothing to do for most of the time."""
    util = case.view.panel("gpu.util").pick(
        lambda row: row.host == drift.host and row.gpu in {drift.gpu, ""}
    )
    use = stats.middle(util.values[:, drift.cells & case.steady]) if util.rows else float("nan")
    return bool(use < RESTING_UTILISATION)


def power(case: JobCase) -> tuple[Drift, ...]:
    """GPUs whose power fell away from the others'."""
    usual = stats.middle(np.where(case.steady, case.view.panel("gpu.power").values, np.nan))
    least = GPU_POWER_DROP.limit * usual if np.isfinite(usual) else 1e9
    return _drifts(case, "gpu.power", "power", least=least, sign=-1.0)


def _drifts(case: JobCase, key: str, kind: str, *, least: float, sign: float) -> tuple[Drift, ...]:
    panel = case.view.panel(key)
    if panel.empty or case.steady.sum() < 8:
        return ()
    own = residual(case, panel, sign)
    width = max(5, int(SMOOTH_SECONDS / case.cell))
    found = []
    low, high = stats.quantile(own, 0.05, axis=1), stats.quantile(own, 0.95, axis=1)
    for index in np.flatnonzero(high - low > 0.7 * least):
        # A median: one cell in which a host was read a moment later than the others is no drift.
        calm = stats.rolling_median(own[index], width)
        calm = np.where(np.isfinite(own[index]), calm, np.nan)
        away = _away(case, calm, least, sign)
        if away is not None:
            found.append(_drift(case, panel, int(index), kind, away, sign))
    return tuple(sorted(found, key=lambda drift: drift.at))


class _Away(msgspec.Struct, frozen=True, kw_only=True):
    """A period in which a card is away from its usual level, in the quantity's unit."""

    cells: Bools
    first: int
    """The cell in which the card began to leave that level, before it had gone far enough."""
    doubt: float
    """The uncertainty of ``first`` in seconds."""
    usual: float
    worst: float
    """How far from that level the card went, unsigned."""


def _away(case: JobCase, calm: Floats, least: float, sign: float) -> _Away | None:
    """The period in which the card's smoothed values (T,) are at least ``least`` from its usual
    level in the direction of ``sign``; None if there is none, or if it is the whole time."""
    shifts = find_shifts(calm, case.times, least=0.5 * least)
    if not shifts:
        return None
    edges = [0, *[shift.index for shift in shifts], case.times.size]
    levels = [stats.middle(calm[a:b]) for a, b in itertools.pairwise(edges)]
    counts = [int(np.isfinite(calm[a:b]).sum()) for a, b in itertools.pairwise(edges)]
    lasting = [i for i, count in enumerate(counts) if count >= FIRST_SHARE * sum(counts)]
    usual = levels[lasting[0]] if lasting else levels[int(np.argmax(counts))]
    cells = np.zeros(case.times.size, dtype=bool)
    for level, (left, right) in zip(levels, itertools.pairwise(edges), strict=True):
        if sign * (level - usual) >= least:
            cells[left:right] = True
    if not cells.any() or cells.all():
        return None
    first, doubt = _start(shifts, cells, sign)
    worst = max(sign * (level - usual) for level in levels)
    return _Away(cells=cells, first=first, doubt=doubt, usual=usual, worst=worst)


def _start(shifts: list[Shift], cells: Bools, sign: float) -> tuple[int, float]:
    """The cell of the last shift that way before it was far away, and the doubt in seconds."""
    first, doubt = int(np.flatnonzero(cells)[0]), SMOOTH_SECONDS / 2
    for shift in reversed(shifts):
        if shift.index <= first and sign * shift.size > 0:
            return shift.index, max(doubt, shift.uncertainty)
    return first, doubt


def _drift(
    case: JobCase, panel: SeriesPanel, index: int, kind: str, away: _Away, sign: float
) -> Drift:
    row, values = panel.rows[index], panel.values[index]
    calm = ~away.cells & case.steady
    usual = stats.middle(values[calm]) if calm.any() else away.usual
    extreme = stats.largest if sign > 0 else stats.smallest
    peak = float(extreme(values[away.cells]))
    unit, where = panel.quantity.unit, "up" if sign > 0 else "down"
    text = (
        f"GPU {row.gpu} of {row.host}: {panel.quantity.title} {where} by {away.worst:.0f} {unit} "
        f"against its peers (usually {usual:.0f}, then {where} to {peak:.0f} {unit})"
    )
    return Drift.of_row(
        panel, row, f"gpu.{kind}", text, away.first, sign * away.worst, peak=peak, cells=away.cells,
        uncertainty=max(case.cell, away.doubt),
    )  # fmt: skip

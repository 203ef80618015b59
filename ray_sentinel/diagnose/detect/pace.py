"""How fast the job ran, and when it was slower than it can be."""

from __future__ import annotations

import itertools

import msgspec
import numpy as np

from ray_sentinel.diagnose import stats
from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.series import Bools, Floats
from ray_sentinel.diagnose.shifts import find_shifts

SLOWER = 0.07
"""Share by which step times must exceed the best lasting level to be a slow spell."""
REGRESSION = 0.10
"""Share by which step times must exceed the best lasting level to be a regression."""
LEAST_SHARE = 0.05
"""Share of the steady cells for which the best level must hold."""
LEAST_CELLS = 4
"""Least number of cells for which the best level, and a slow spell, must hold."""


class Spell(msgspec.Struct, frozen=True, kw_only=True):
    """The job ran at ``factor`` times its best sustained step time from ``start`` to ``end``."""

    start: float
    end: float
    factor: float
    uncertainty: float
    gradual: bool = False
    risen: bool = True
    """Steps had been faster before; False where they had not, because the job was settling down."""


class StepPace(msgspec.Struct, frozen=True, kw_only=True):
    """Step times over time. ``relative`` (T,) is the step time over the best sustained level."""

    known: bool
    best: float = float("nan")
    """Seconds per step at the best lasting level."""
    relative: Floats
    spells: tuple[Spell, ...] = ()
    metric: str = ""
    promql: str = ""

    @property
    def worst(self) -> float:
        """The greatest factor of any spell; 1 if there was none."""
        return max((spell.factor for spell in self.spells), default=1.0)

    @property
    def regressed(self) -> bool:
        """Whether steps became slower in some spell, by enough to matter."""
        return any(spell.risen and spell.factor >= 1.0 + REGRESSION for spell in self.spells)

    def cells(self, times: Floats) -> Bools:
        """(T,) cells inside a slow spell."""
        inside = np.zeros(times.size, dtype=bool)
        for spell in self.spells:
            inside |= (times >= spell.start) & (times <= spell.end)
        return inside


def find(case: JobCase) -> StepPace:
    """The pace of the steady part of the job."""
    values, metric, promql = _seconds(case)
    steady = np.where(case.steady, values, np.nan)
    if np.isfinite(steady).sum() < 8:
        return StepPace(known=False, relative=np.full(case.times.size, np.nan))
    usual = stats.middle(steady)
    shifts = find_shifts(_fresh(case, steady), case.times, least=0.0, relative=0.03)
    edges = [0, *[shift.index for shift in shifts], case.times.size]
    levels = []
    for left, right in itertools.pairwise(edges):
        part = steady[left:right]
        levels.append((stats.middle(part), int(np.isfinite(part).sum()), left, right))
    enough = max(LEAST_CELLS, LEAST_SHARE * int(np.isfinite(steady).sum()))
    lasting = [level for level, count, *_ in levels if count >= enough and np.isfinite(level)]
    best = min(lasting) if lasting else usual
    return StepPace(
        known=True,
        best=best,
        relative=stats.carried(steady) / best,
        spells=_spells(case, levels, best),
        metric=metric,
        promql=promql,
    )


def _seconds(case: JobCase) -> tuple[Floats, str, str]:
    """Seconds a step took in each cell, or something proportional to that, and the metric it comes
    from."""
    for key in ("train.step_time", "train.step"):
        panel = case.view.panel(key)
        if not panel.empty and np.isfinite(case.durations).sum() >= 8:
            return case.durations, panel.metric, panel.promql()
    panel = case.view.panel("train.throughput")
    if panel.empty:
        return np.full(case.times.size, np.nan), "", ""
    with np.errstate(divide="ignore"):
        values = 1.0 / stats.median(panel.values, 0)
    return np.where(np.isfinite(values), values, np.nan), panel.metric, panel.promql()


def _fresh(case: JobCase, steady: Floats) -> Floats:
    """Each step's time, or each counted one, once: a value that is read again before the next step
    ends does not count again.

    The times are not smoothed either: the detection of a new level relies on independent values,
    and cuts single slow steps itself.
    """
    done = np.diff(case.line.front, prepend=np.nan) != 0.0
    if case.view.panel("train.step_time").empty and np.isfinite(case.durations).any():
        done = case.counted_durations[1]
    fresh = np.where(done, steady, np.nan)
    return fresh if np.isfinite(fresh).sum() >= 2 * LEAST_CELLS else steady


def _spells(
    case: JobCase, levels: list[tuple[float, int, int, int]], best: float
) -> tuple[Spell, ...]:
    spells: list[Spell] = []
    before = np.inf
    for level, count, left, right in levels:
        factor = level / best if best > 0 else 1.0
        if not np.isfinite(factor) or count < LEAST_CELLS:
            continue
        risen = factor >= before * (1.0 + SLOWER)
        before = min(before, factor)
        if factor < 1.0 + SLOWER:
            continue
        start, end = float(case.times[left]), float(case.times[right - 1])
        if spells and start - spells[-1].end <= 2 * case.cell:
            last = spells.pop()
            spells.append(
                Spell(
                    start=last.start,
                    end=end,
                    factor=max(last.factor, factor),
                    uncertainty=last.uncertainty,
                    gradual=last.gradual or factor > last.factor * 1.02,
                    risen=last.risen or risen,
                )
            )
            continue
        usual = case.line.step_seconds if np.isfinite(case.line.step_seconds) else 0.0
        doubt = max(case.cell, usual)
        spells.append(Spell(start=start, end=end, factor=factor, uncertainty=doubt, risen=risen))
    return tuple(spells)


def effect(case: JobCase, cells: Bools) -> float:
    """How much slower the job was in these cells (T,) than in the other steady ones: 0.2 is 20 %.

    NaN if one side has fewer than three known cells.
    """
    pace = case.once(find)
    known = np.isfinite(pace.relative) & case.steady
    inside, outside = known & cells, known & ~cells
    if inside.sum() < 3 or outside.sum() < 3:
        return float("nan")
    away = stats.middle(pace.relative[outside])
    return stats.middle(pace.relative[inside]) / away - 1.0

"""The plots of a comparison: the measures that differ, of both jobs, over their common steps.

Over steps, and not over time: two jobs that are not equally fast were at different steps then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ray_sentinel.diagnose import stats
from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.common_steps import inside
from ray_sentinel.diagnose.detect.curve import joint
from ray_sentinel.diagnose.logs import LogFacts
from ray_sentinel.diagnose.series import Floats
from ray_sentinel.diagnose.sweep import SWEEP, SweepRow
from ray_sentinel.model.comparison import Delta
from ray_sentinel.model.diagnosis import Plot

POINTS = 120
"""Most points of one line; values that fall on one point are replaced by their mean."""
MOST_PLOTS = 6
LOSS = "train.loss"
JOBS = ("job A", "job B")

Curve = tuple[Floats, Floats]
"""The steps (N,) and the values (N,) of a curve."""


def plots(
    cases: tuple[JobCase | None, JobCase | None],
    logs: tuple[LogFacts, LogFacts],
    steps: tuple[float, float],
    deltas: Sequence[Delta],
) -> tuple[Plot, ...]:
    """The time per step first, then what differs, then the loss; ``times`` are steps. Empty if
    nothing is known of both jobs."""
    edges = np.linspace(steps[0], steps[1], min(POINTS, max(int(steps[1] - steps[0]), 2)) + 1)
    found = []
    for title, unit, curves in _wanted(cases, logs, steps, deltas):
        lines = [_binned(curve, edges) for curve in curves]
        if all(np.isfinite(line).sum() > 1 for line in lines):
            found.append(
                Plot(
                    title=title,
                    unit=unit,
                    promql="",
                    times=tuple(((edges[:-1] + edges[1:]) / 2).tolist()),
                    series=tuple(
                        (name, tuple(line.tolist())) for name, line in zip(JOBS, lines, strict=True)
                    ),
                )
            )
    return tuple(found[:MOST_PLOTS])


def _wanted(
    cases: tuple[JobCase | None, JobCase | None],
    logs: tuple[LogFacts, LogFacts],
    steps: tuple[float, float],
    deltas: Sequence[Delta],
) -> Iterator[tuple[str, str, list[Curve]]]:
    """Title, unit, and both curves."""
    first, second = cases
    if first is None or second is None:
        yield "step time", "s", [_logged(one) for one in logs]
        return
    both = (first, second)
    yield "step time", "s", [_of_one(case, steps, case.durations) for case in both]
    differ = {delta.title for delta in deltas if delta.significant}
    for row in sorted(SWEEP, key=lambda row: row.key == LOSS):
        drawn = row.title in differ or row.key == LOSS
        if not drawn or row.total or row.key == "train.step_time":
            continue
        unit = second.view.panel(row.key).unit
        yield row.title, unit, [_of_one(case, steps, _level(case, row)) for case in both]


def _of_one(case: JobCase, steps: tuple[float, float], values: Floats) -> Curve:
    cells = inside(case, steps)
    return (case.line.front[cells], values[cells]) if values.size else (np.empty(0), np.empty(0))


def _level(case: JobCase, row: SweepRow) -> Floats:
    """(T,) the mean over hosts and devices; empty if the job does not report it."""
    panel = case.view.panel(row.key)
    if panel.empty:
        return np.empty(0)
    return joint(case, panel) if row.key == LOSS else stats.mean(panel.levels(), 0)


def _logged(logs: LogFacts) -> Curve:
    known = [(step.step, step.seconds) for step in logs.steps if step.seconds is not None]
    return np.array([step for step, _ in known]), np.array([seconds for _, seconds in known])


def _binned(curve: Curve, edges: Floats) -> Floats:
    """The mean of the values between each two edges; NaN if there are none."""
    places, values = curve
    known = np.isfinite(places) & np.isfinite(values)
    count, _ = np.histogram(places[known], edges)
    total, _ = np.histogram(places[known], edges, weights=values[known])
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(count > 0, total / count, np.nan)

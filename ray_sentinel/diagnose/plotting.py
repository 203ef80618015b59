"""Which series to draw with a diagnosis, and around which moments."""

from __future__ import annotations

import numpy as np

from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.panel import SeriesPanel
from ray_sentinel.diagnose.quantities import QUANTITIES
from ray_sentinel.diagnose.series import Floats
from ray_sentinel.model.diagnosis import Diagnosis, Plot

MAX_POINTS = 360
"""Most points of one line; a longer one is thinned to so many."""
MAX_SERIES = 6
"""Most series of one plot; the others are summed up or left out."""
MAX_PLOTS = 8
"""Most plots of one diagnosis; further ones are left out."""
AROUND = 0.35
"""Share of the incident's length that is shown before the onset and after the end."""
LEAST_SECONDS = 900.0
"""Least number of seconds shown before the onset and after the end."""
_ALWAYS = ("train.step_time", "train.step", "gpu.power", "gpu.util", "rdma.tx")


def plots(case: JobCase, diagnosis: Diagnosis) -> tuple[Plot, ...]:
    """The job's pulse, what its GPUs and its network do, and what the causal chain names."""
    start, end = _range(case, diagnosis)
    keys = [key for key in _ALWAYS if not case.view.panel(key).empty]
    metrics = {link.metric for link in diagnosis.chain if link.metric}
    metrics |= {fact.metric for fact in diagnosis.evidence if fact.metric}
    for key, quantity in QUANTITIES.items():
        if key not in keys and metrics & {name.metric for name in quantity.names}:
            keys.append(key)
    marks = _marks(diagnosis)
    wanted = [key for key in keys if not case.view.panel(key).empty][:MAX_PLOTS]
    return tuple(_plot(case, case.view.panel(key), diagnosis, start, end, marks) for key in wanted)


def _range(case: JobCase, diagnosis: Diagnosis) -> tuple[float, float]:
    first = diagnosis.onset if diagnosis.onset is not None else diagnosis.window[0]
    last = max(diagnosis.window[1], first)
    margin = max(LEAST_SECONDS, AROUND * (last - first))
    return max(case.view.start, first - margin), min(case.view.end, last + margin)


def _marks(diagnosis: Diagnosis) -> tuple[tuple[float, str], ...]:
    seen: dict[int, str] = {}
    for link in diagnosis.chain:
        if link.at is not None and round(link.at) not in seen:
            seen[round(link.at)] = link.role
    return tuple((float(at), role) for at, role in sorted(seen.items()))[:6]


def _plot(
    case: JobCase, panel: SeriesPanel, diagnosis: Diagnosis, start: float, end: float,
    marks: tuple[tuple[float, str], ...],
) -> Plot:  # fmt: skip
    inside = np.flatnonzero((case.times >= start) & (case.times <= end))
    stride = max(1, int(np.ceil(inside.size / MAX_POINTS)))
    cells = inside[::stride]
    series = []
    for name, row in _rows(panel, panel.levels(), diagnosis):
        shown = [float(np.float32(_peak(row, cell, stride))) for cell in cells]
        series.append((name, tuple(shown)))
    return Plot(
        title=panel.quantity.title,
        unit=panel.unit,
        promql=panel.promql(),
        times=tuple(float(case.times[cell]) for cell in cells),
        series=tuple(series),
        marks=marks,
    )


def _peak(row: Floats, cell: int, stride: int) -> float:
    part = row[cell : cell + stride]
    known = part[np.isfinite(part)]
    return float(known[np.argmax(np.abs(known))]) if known.size else float("nan")


def _rows(panel: SeriesPanel, values: Floats, diagnosis: Diagnosis) -> list[tuple[str, Floats]]:
    """The culprits' own rows first, then the middle of all others."""
    guilty = {(one.host, one.gpu) for one in diagnosis.culprits}
    hosts = {host for host, gpu in guilty if not gpu}
    own = [
        index
        for index, row in enumerate(panel.rows)
        if row.host in hosts or (row.host, row.gpu) in guilty
    ]
    spread = np.array([_reach(row) for row in values])
    own.sort(key=lambda index: -spread[index])
    named = own[: MAX_SERIES - 1] if own else list(np.argsort(-spread)[: MAX_SERIES - 1])
    rows = [(panel.rows[index].title, values[index]) for index in named]
    rest = [index for index in range(len(panel.rows)) if index not in named]
    if len(rest) == 1:
        rows.append((panel.rows[rest[0]].title, values[rest[0]]))
    elif rest:
        others = values[rest]
        known = np.isfinite(others)
        with np.errstate(invalid="ignore", divide="ignore"):
            middle = np.where(known, others, 0.0).sum(axis=0) / known.sum(axis=0)
        rows.append((f"mean of {len(rest)} others", middle))
    return rows


def _reach(row: Floats) -> float:
    known = row[np.isfinite(row)]
    return float(np.ptp(known)) if known.size else 0.0

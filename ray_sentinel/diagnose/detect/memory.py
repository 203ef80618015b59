"""Host memory: how it grew, how close to the limit it came, and what was killed for it."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ray_sentinel.diagnose import stats
from ray_sentinel.diagnose.anomaly import Anomaly
from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.detect import faults, usage
from ray_sentinel.diagnose.detect.usage import Usage
from ray_sentinel.diagnose.series import Floats
from ray_sentinel.model.thresholds import OOM_KILLS

Shape = Literal["ramp", "spike", "periodic", "flat"]

SPIKE_SECONDS = 300.0
"""Seconds within which memory rises in a spike; a slower rise is a ramp."""
RISE = 0.10
"""Share of the limit by which memory must have risen to have a shape at all."""


class HostMemory(Anomaly, frozen=True, kw_only=True):
    """One host's memory before it ran out (or to the end). Shares are of the limit; the size is the
    greatest share that was used."""

    shape: Shape
    start_share: float
    peak_at: float
    per_hour: float
    """Growth of the ramp per hour, as a share of the limit."""
    lately_per_hour: float
    """Growth per hour over the later half of the training, as a share of the limit: what fills at
    the start is no leak."""
    kills: float
    limit: float
    """The limit in bytes."""
    scarce: bool
    """Being full means that memory runs short."""


def kills(case: JobCase) -> dict[str, Anomaly]:
    """Host → OOM kills within the job, at the time of the first; their number is the size."""
    found: dict[str, Anomaly] = {}
    for key in ("mem.oom", "mem.cgroup_oom", "err.dmesg"):
        panel = case.view.panel(key)
        if key == "err.dmesg":
            panel = panel.pick(lambda row: row.unit == "oom")
        if panel.empty:
            continue
        for row, rises in zip(panel.rows, faults.growth(case, panel), strict=True):
            count = float(np.nansum(rises))
            if count < OOM_KILLS.limit or row.host in found:
                continue
            first, text = int(np.argmax(rises > 0)), f"{row.host}: {count:.0f} OOM kill(s)"
            found[row.host] = Anomaly.of_row(
                panel, row, "host.oom-kill", text, first, count, uncertainty=case.cell,
                promql=panel.growth_promql(row),
            )  # fmt: skip
    return found


def find(case: JobCase) -> tuple[HostMemory, ...]:
    """Every host's memory, the fullest first."""
    killed = case.once(kills)
    found = []
    for own in case.once(usage.find):
        one = _host(case, own, killed.get(own.host))
        if one is not None:
            found.append(one)
    return tuple(sorted(found, key=lambda one: -one.size))


def _host(case: JobCase, own: Usage, kill: Anomaly | None) -> HostMemory | None:
    row, used, limits = own.row, own.used, own.limit
    whose = "memory of the container" if own.container else "host memory"
    until = _before_kill(case, used, kill.at) if kill else used.size
    share = used[:until] / limits[:until]
    if np.isnan(share).all():
        # Without a limit shapes can still be told; "full" cannot.
        share = used[:until] / stats.largest(used)
    known = np.flatnonzero(np.isfinite(share))
    if known.size < 8:
        return None
    before = float(stats.median(share[known[: max(3, known.size // 10)]]))
    peak_cell = int(known[np.argmax(share[known])])
    peak = float(share[peak_cell])
    base = _baseline(case, share)
    shape, rise_at, per_hour = _shape(case, share, base, peak_cell, before)
    return HostMemory(
        kind=f"host.memory-{shape}",
        text=f"{row.host}: {whose} {_words(shape)}, from {before:.0%} to {peak:.0%} of its limit",
        at=rise_at,
        uncertainty=max(case.cell, 300.0 if shape == "ramp" else case.cell),
        host=row.host,
        size=peak,
        metric=own.panel.metric,
        promql=own.panel.promql(row),
        shape=shape,
        start_share=before,
        peak_at=float(case.times[peak_cell]),
        per_hour=per_hour,
        lately_per_hour=_lately(case, base),
        kills=kill.size if kill else 0.0,
        limit=stats.middle(limits),
        scarce=own.scarce,
    )


def _before_kill(case: JobCase, used: Floats, at: float) -> int:
    """The cell after the greatest use in the minutes before a kill: then memory is free again."""
    last = case.cell_of(at) + 1
    first = max(last - max(int(SPIKE_SECONDS / case.cell), 3), 0)
    part = used[first:last]
    return first + int(np.nanargmax(part)) + 1 if np.isfinite(part).any() else last


def _words(shape: Shape) -> str:
    return {
        "ramp": "grew steadily",
        "spike": "jumped",
        "periodic": "peaked again and again",
        "flat": "stayed level",
    }[shape]


def _shape(
    case: JobCase, share: Floats, base: Floats, peak_cell: int, before: float
) -> tuple[Shape, float, float]:
    """The shape of the way up to the peak, when it began, and its growth per hour."""
    part = base[: peak_cell + 1]
    ramp = _ramp(case, part)
    peaks = _peaks(case, share, base)
    top = float(share[peak_cell] - base[peak_cell])
    if len(peaks) >= 2 and top >= max(RISE / 2, 0.5 * ramp[1]):
        last = [start for start, _ in peaks if start <= peak_cell] or [peak_cell]
        return "periodic", float(case.times[last[-1]]), ramp[0]
    if ramp[1] >= RISE and ramp[1] >= top:
        return "ramp", ramp[2], ramp[0]
    if top >= RISE or float(share[peak_cell]) - before >= RISE:
        return "spike", _spike_start(case, share, peak_cell), ramp[0]
    return "flat", float(case.times[peak_cell]), ramp[0]


def _baseline(case: JobCase, share: Floats) -> Floats:
    """(T,) the level without short peaks: a low running quantile, carried over holes."""
    width = max(9, int(2 * SPIKE_SECONDS / case.cell) | 1)
    filled = stats.carried_both(share)
    half = min(width // 2, filled.size - 1)
    padded = np.concatenate((np.full(half, filled[0]), filled, np.full(half, filled[-1])))
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1)
    low = np.quantile(windows, 0.2, axis=1)
    return np.asarray(np.minimum(low, filled))


def _lately(case: JobCase, base: Floats) -> float:
    """Growth per hour over the later half of the training, or of all where none was done."""
    at_work = case.steady[: base.size]
    known = np.flatnonzero(np.isfinite(base) & (at_work if at_work.any() else True))
    later = known[known.size // 2 :]
    return _slope(case, base, later) if later.size >= 6 else 0.0


def _slope(case: JobCase, base: Floats, cells: NDArray[np.intp]) -> float:
    """Growth per hour: the median of the slopes between points half of the cells apart (Theil,
    Sen)."""
    half = cells.size // 2
    first, second = cells[: cells.size - half], cells[half:]
    hours = (case.times[second] - case.times[first]) / 3600.0
    return float(np.median((base[second] - base[first]) / hours))


def _ramp(case: JobCase, base: Floats) -> tuple[float, float, float]:
    """Growth per hour, total growth, begin: of a steady rise that lasts to the end of ``base``."""
    known = np.flatnonzero(np.isfinite(base))
    if known.size < 8:
        return 0.0, 0.0, float(case.times[0])
    low = float(np.min(base[known]))
    total = float(base[known[-1]]) - low
    border = low + 0.15 * total
    above = np.flatnonzero(base[known] > border)
    # The rise began where the level last lay near its lowest.
    start = int(known[max(np.flatnonzero(base[known] <= border)[-1], 0)]) if above.size else 0
    span = known[known >= start]
    hours = (case.times[span[-1]] - case.times[span[0]]) / 3600.0
    if hours * 3600.0 < 2 * SPIKE_SECONDS or span.size < 6:
        return 0.0, 0.0, float(case.times[start])
    slope = _slope(case, base, span)
    return (slope, total, float(case.times[start])) if slope > 0 else (0.0, 0.0, 0.0)


def _peaks(case: JobCase, share: Floats, base: Floats) -> list[tuple[int, int]]:
    high = share - base > max(RISE / 3, 0.3 * float(stats.largest(share - base)))
    return stats.runs(stats.joined(high, max(1, int(60.0 / case.cell))))


def _spike_start(case: JobCase, share: Floats, peak_cell: int) -> float:
    first = max(peak_cell - int(SPIKE_SECONDS / case.cell), 0)
    part = share[first : peak_cell + 1]
    low = float(stats.smallest(part))
    below = np.flatnonzero(part <= low + 0.1 * (share[peak_cell] - low))
    return float(case.times[first + int(below[-1])]) if below.size else float(case.times[first])

"""GPUs in a stall: do they compute, busy-wait, or idle?

Utilisation only says that a kernel is resident: a collective's polling loop shows 100 %. Power
tells polling from work: a polling loop draws the same near idle all the time, while an evaluation
or a generation may draw far less than training, but goes up and down with its batches. Levels
differ between models and between cards, so both are learned from the job itself: each GPU's power
at work from its steady training, its idle power from the lowest lasting level seen anywhere in the
job.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from ray_sentinel.diagnose import stats
from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.series import Bools, Floats

State = Literal["working", "computing", "waiting", "resting", "gone", "unclear"]
"""What a GPU does during a stall; "computing" is work at less power than the training's."""
HIGH_UTILISATION = 60.0
"""Per cent of utilisation above which a GPU has entered a kernel and stays in it. No limit of the
table: a polling loop shows 100 %, from which an average over the edges of the stall takes away."""
WORK_SHARE = 0.6
"""Share of a GPU's power at work below which it does not work, where no idle level below that was
seen."""
STEADY = 0.06
"""Share of its power that a polling GPU's robust spread does not exceed. The spread of sensors at a
constant load is at most half of it."""
LEAST_CELLS = 5
"""Least number of known cells for a spread."""
LEAD_SECONDS = 3600.0
"""Seconds before the stall from which the power at work is learned."""


class StalledGpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU during the stall. Power in watts, utilisation in per cent; NaN if not known."""

    host: str
    gpu: str
    state: State
    power: float
    working_power: float
    utilisation: float


def states(case: JobCase, start: float, end: float) -> tuple[StalledGpu, ...]:
    """Every GPU (or host, if utilisation is only known by host) from ``start`` to ``end``."""
    power, util = case.view.panel("gpu.power"), case.view.panel("gpu.util")
    # Power that a GPU drew just before the stall, else over the whole time that it trained.
    before = case.steady & (case.times > start - LEAD_SECONDS) & (case.times <= start)
    if before.sum() < 3:
        before = case.steady & (case.times <= start)
    inside = (case.times >= start) & (case.times <= end)
    utils = {
        (row.host, row.gpu): values for row, values in zip(util.rows, util.values, strict=True)
    }
    found = []
    for row, values in zip(power.rows, power.values, strict=True):
        use = utils.get((row.host, row.gpu), utils.get((row.host, "")))
        found.append(_state(row.host, row.gpu, values, use, before, inside))
    if not power.rows:
        for row, values in zip(util.rows, util.values, strict=True):
            found.append(_state(row.host, row.gpu, None, values, before, inside))
    return tuple(found)


def _state(
    host: str,
    gpu: str,
    power: Floats | None,
    util: Floats | None,
    before: Bools,
    inside: Bools,
) -> StalledGpu:
    nan = float("nan")
    now = stats.middle(power[inside]) if power is not None else nan
    work = stats.middle(power[before]) if power is not None else nan
    if power is not None and not np.isfinite(work):
        work = float(stats.quantile(power, 0.9))
    idle = float(stats.quantile(power, 0.02)) if power is not None else nan
    use = stats.middle(util[inside]) if util is not None else nan
    seen = power is not None or util is not None
    known = np.isfinite(power[inside]).any() if power is not None else False
    if not known and util is not None:
        known = bool(np.isfinite(util[inside]).any())
    state = _judge(now, work, idle, use) if seen and known else "gone"
    if state == "waiting" and power is not None and not _steady(power[inside]):
        state = "computing"
    return StalledGpu(host=host, gpu=gpu, state=state, power=now, working_power=work,
                    utilisation=use)  # fmt: skip


def _judge(now: float, work: float, idle: float, use: float) -> State:
    if np.isfinite(now) and now <= 1.0 and not use > HIGH_UTILISATION:
        return "gone"
    if not np.isfinite(now) or not np.isfinite(work) or work <= 0:
        if not np.isfinite(use):
            return "unclear"
        return "unclear" if use > HIGH_UTILISATION else "resting"
    border = (idle + work) / 2 if idle < WORK_SHARE * work else WORK_SHARE * work
    if now > border:
        return "working"
    if np.isfinite(use):
        return "waiting" if use > HIGH_UTILISATION else "resting"
    return "unclear"


def _steady(power: Floats) -> bool:
    known = power[np.isfinite(power)]
    return known.size < LEAST_CELLS or bool(stats.sigma(known) <= STEADY * stats.median(known))

"""What the driver says of cards whose clock or power fell: the reasons it gives, and their power
limit."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from ray_sentinel.diagnose import stats
from ray_sentinel.diagnose.anomaly import Anomaly
from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.panel import SeriesOwner, listed
from ray_sentinel.diagnose.series import Bools, Floats
from ray_sentinel.model.thresholds import GPU_THROTTLED

LEAST_WATTS = 1.0
"""Watts by which a limit must be lower: drivers round it."""
Card = tuple[str, str]
"""Host and GPU."""


class ClockReasons(msgspec.Struct, frozen=True):
    """The reasons for the clocks of some cards."""

    text: str = ""
    """The reasons in short, those of all cards; empty where nothing is said."""
    anomalies: tuple[Anomaly, ...] = ()


def of_cards(case: JobCase, cards: Mapping[Card, Bools]) -> ClockReasons:
    """What came with the time (T,) in which each card was held down: a power limit that is lower in
    it than before, and a reason that the driver gives for most of it and not for the rest."""
    found: dict[str, list[Anomaly]] = {}
    for panel, judge in (
        (case.view.panel("gpu.power_limit"), _lowered),
        (case.view.panel("gpu.throttle"), _given),
    ):
        for row, values in zip(panel.rows, panel.values, strict=True):
            cells = cards.get((row.host, row.gpu))
            if cells is None:
                continue
            why = judge(row, values, cells & case.steady, ~cells & case.steady)
            if why:
                first = _first(values, cells)
                kind, size = f"gpu.{panel.quantity.key[4:]}", stats.middle(values[cells])
                found.setdefault(why, []).append(Anomaly.of_row(panel, row, kind, why, first, size))
    return ClockReasons(listed(list(found), 3), tuple(map(_as_one, found.values())))


def _first(values: Floats, cells: Bools) -> int:
    """The first cell of the time around ``cells`` in which the value is as in it."""
    level = stats.middle(values[cells])
    same = stats.joined(np.abs(values - level) <= LEAST_WATTS / 2, 2) | cells
    return next(left for left, right in stats.runs(same) if cells[left:right].any())


def _as_one(alike: list[Anomaly]) -> Anomaly:
    """The first card's, with the number of the others."""
    first = min(alike, key=lambda anomaly: anomaly.at)
    others = f" and {len(alike) - 1} more" if len(alike) > 1 else ""
    text = f"GPU {first.gpu} of {first.host}{others}: {first.text}"
    return msgspec.structs.replace(first, text=text)


def _lowered(_: SeriesOwner, values: Floats, inside: Bools, outside: Bools) -> str:
    now, before = stats.middle(values[inside]), stats.middle(values[outside])
    lower = now < before - LEAST_WATTS
    return f"power limit {now:.0f} W, otherwise {before:.0f} W" if lower else ""


def _given(row: SeriesOwner, values: Floats, inside: Bools, outside: Bools) -> str:
    now, before = float(stats.mean(values[inside])), float(stats.mean(values[outside]))
    most = GPU_THROTTLED.limit
    return f"driver's reason {row.unit}" if now >= most > before else ""

"""Time windows as people write them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime, timezone

from ray_sentinel import regex as re
from ray_sentinel.diagnose.series import Grid, Selector, TimeSeries
from ray_sentinel.errors import InputError, UsageError

LAST_STEP_LEAD = 1800.0
"""Seconds by which the windows ``last-step`` and ``crash`` begin before the last step or the
end."""
_STEP = re.compile(r"^step-(\d{1,12})$")
_LAST = re.compile(r"^last-(\d+)([smhd])$")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_window(text: str, source: TimeSeries) -> tuple[float, float]:
    """``START..END``, a single moment, ``last-30m``, ``last-step`` or ``crash`` as Unix seconds.

    START and END may be ``step-N``: when that step was done. ``last-step`` begins half an hour
    before the last step done. Raises UsageError if it is none of these, InputError if the source
    has no data, or does not reach the step.
    """
    span = source.span()
    if span is None:
        raise InputError(f"{source.title} holds no series at all")
    if last := _LAST.match(text):
        if not float(last[1]):
            raise UsageError(f"--window {text}: holds no time at all")
        return max(span[0], span[1] - float(last[1]) * _UNITS[last[2]]), span[1]
    if text == "crash":
        return max(span[0], span[1] - LAST_STEP_LEAD), span[1]
    if text == "last-step":
        return max(span[0], last_step(source, span) - LAST_STEP_LEAD), span[1]
    start, dots, end = text.partition("..")
    first = _edge(start, source, span) if start else span[0]
    if not dots:
        return first, first
    last_time = _edge(end, source, span) if end else span[1]
    if last_time <= first:
        raise UsageError(f"--window {text}: the end is not after the start")
    return first, last_time


def _edge(text: str, source: TimeSeries, span: tuple[float, float]) -> float:
    """A time, or when a step was done."""
    step = _STEP.match(text.strip())
    return parse_time(text) if step is None else _when_done(int(step[1]), source, span)


def _when_done(step: int, source: TimeSeries, span: tuple[float, float]) -> float:
    for grid in _step_grids(source, span, ("tb_step", "train_step", "tb_global_step")):
        done = grid.times[(grid.values >= step).any(axis=0)]
        if done.size:
            return float(done[0])
        raise InputError(f"{source.title} does not reach step {step}")
    raise _no_steps(source)


def parse_time(text: str) -> float:
    """Unix seconds, or ISO 8601 (UTC where no zone is given). Raises UsageError."""
    try:
        number = float(text)
    except ValueError:
        pass
    else:
        if math.isfinite(number):
            return number
        raise UsageError(f"{text!r} is no time that can be meant")
    try:
        when = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    except ValueError:
        raise UsageError(
            f"{text!r} is no time: Unix seconds or 2026-01-31T12:00:00 are meant"
        ) from None
    return (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp()


def last_step(source: TimeSeries, span: tuple[float, float]) -> float:
    """When the step series last rose. Raises InputError if there is none."""
    for grid in _step_grids(source, span, ("tb_step", "train_step")):
        rises = (grid.values[:, 1:] > grid.values[:, :-1]).any(axis=0)
        if rises.any():
            return float(grid.times[1:][rises][-1])
    raise _no_steps(source)


def _step_grids(
    source: TimeSeries, span: tuple[float, float], names: tuple[str, ...]
) -> Iterator[Grid]:
    """Those of the step series that the source has, each on some 2,000 cells."""
    cell = max((span[1] - span[0]) / 2000.0, 10.0)
    for name in names:
        if name in source.families():
            yield source.query_range(Selector(name), span[0], span[1], cell, "max")


def _no_steps(source: TimeSeries) -> InputError:
    return InputError(f"{source.title} holds no step series: give --window START..END")

"""Noise and the first steps of a job are no regression of its step time; a new level is one."""

from __future__ import annotations

import numpy as np
import pytest

from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.detect import pace
from ray_sentinel.diagnose.series import Floats
from ray_sentinel.diagnose.view import View
from ray_sentinel.store.event_files.memory import MemorySource

BEGIN, STEPS, SEEDS = 1.7e9, 600, 10
PLACE = np.arange(STEPS)


def slowed(seconds: float, factor: Floats | float, noise: float, seed: int, every: float) -> bool:
    """Whether a job of 600 steps is said to have grown slower.

    Its series are read ``every`` so many seconds, or written by itself with each step (0).
    """
    dice = np.random.default_rng(seed)
    lasted = seconds * factor * dice.lognormal(0.0, noise, STEPS)
    times, done = BEGIN + np.cumsum(lasted), PLACE
    if every:
        scrapes = np.arange(times[0], times[-1], every)
        done = np.searchsorted(times, scrapes, side="right") - 1
        times = scrapes
    source = MemorySource()
    source.add("tb_step", {"host": "n0"}, times, done.astype(float))
    source.add("tb_perf_step_time_seconds", {"host": "n0"}, times, lasted[done])
    span = source.span()
    assert span is not None
    return pace.find(JobCase(View(source, *span))).regressed


READ = pytest.mark.parametrize(("seconds", "every"), [(10.0, 0.0), (24.0, 10.0), (3.0, 10.0)])


@READ
def test_noise_is_no_regression(seconds: float, every: float) -> None:
    found = [slowed(seconds, 1.0, 0.35, seed, every) for seed in range(SEEDS)]
    assert sum(found) <= 1


@READ
def test_steps_that_settle_down_are_no_regression(seconds: float, every: float) -> None:
    warming = np.where(PLACE < 30, 4.0 - PLACE / 10.0, 1.0)
    assert not any(slowed(seconds, warming, 0.05, seed, every) for seed in range(SEEDS))


@READ
@pytest.mark.parametrize("until", [360, STEPS])
def test_a_slower_level_is_one(seconds: float, every: float, until: int) -> None:
    slower = np.where((PLACE >= 300) & (until > PLACE), 1.25, 1.0)
    assert all(slowed(seconds, slower, 0.1, seed, every) for seed in range(SEEDS))

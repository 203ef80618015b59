"""Shifts of the level of a series: found, and told from noise."""

from __future__ import annotations

import numpy as np
import pytest

from ray_sentinel.diagnose.shifts import find_shifts

TIMES = 1000.0 + 10.0 * np.arange(200)


def noisy(levels: list[tuple[int, float]], noise: float, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    parts = [np.full(count, level) for count, level in levels]
    values = np.concatenate(parts)
    return values + rng.normal(0, noise, values.size) if noise else values


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_one_step_is_found_where_it_is(noise: float) -> None:
    shifts = find_shifts(noisy([(120, 10.0), (80, 20.0)], noise), TIMES, least=2.0)
    assert len(shifts) == 1
    assert abs(shifts[0].index - 120) <= 1
    assert shifts[0].size == pytest.approx(10.0, abs=0.6)


def test_an_episode_that_leaves_both_halves_alike_is_found() -> None:
    shifts = find_shifts(noisy([(80, 10), (30, 20), (90, 10)], 0.5), TIMES, least=2.0)
    assert [abs(a - b) <= 1 for a, b in zip([s.index for s in shifts], (80, 110), strict=True)]
    assert shifts[0].size > 0 > shifts[1].size


def test_spikes_holes_and_noise_are_no_shift() -> None:
    for seed in range(30):
        values = noisy([(200, 10.0)], 1.0, seed)
        values[::25] += 200.0
        values[3:9] = np.nan
        values[50] = np.inf
        assert find_shifts(values, TIMES, least=1.0) == []


@pytest.mark.parametrize("values", [np.empty(0), np.full(200, np.nan), np.full(200, 3.0)])
def test_empty_missing_and_flat_series_have_none(values: np.ndarray) -> None:
    assert find_shifts(values, TIMES[: values.size], least=0.0) == []


def test_two_samples_are_too_few() -> None:
    values = np.full(200, np.nan)
    values[[0, 199]] = 1.0, 100.0
    assert find_shifts(values, TIMES, least=0.0) == []


def test_a_late_series_is_judged_by_what_it_has() -> None:
    values = noisy([(120, 10.0), (80, 20.0)], 0.5)
    values[:100] = np.nan
    shifts = find_shifts(values, TIMES, least=2.0)
    assert len(shifts) == 1
    assert abs(shifts[0].index - 120) <= 1

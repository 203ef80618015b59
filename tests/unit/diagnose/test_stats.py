"""Statistics that bear with missing and infinite values."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_equal

from ray_sentinel.diagnose import stats

NAN, INF = float("nan"), float("inf")


def test_missing_and_infinite_values_do_not_count() -> None:
    values = np.array([1.0, NAN, 3.0, INF, -INF, 2.0])
    assert stats.middle(values) == 2.0
    assert float(stats.mean(values)) == 2.0
    assert float(stats.largest(values)) == 3.0
    assert float(stats.smallest(values)) == 1.0


def test_nothing_known_is_nan_and_no_warning(recwarn: pytest.WarningsRecorder) -> None:
    assert np.isnan(stats.middle(np.array([NAN, INF])))
    assert np.isnan(stats.sigma(np.empty(0)))
    assert not recwarn.list


@pytest.mark.parametrize(
    "shape", [(1,), (2,), (37,), (1, 5), (40, 3), (3, 700), (0,), (0, 4), (4, 0)]
)
@pytest.mark.parametrize("holes", [0.0, 0.3, 0.95, 1.0])
@pytest.mark.filterwarnings("ignore:All-NaN|Mean of empty:RuntimeWarning")
def test_medians_and_quantiles_are_numpys(shape: tuple[int, ...], holes: float) -> None:
    rng = np.random.default_rng(3)
    values = rng.lognormal(0, 3.0, shape)
    values[rng.random(shape) < holes] = NAN
    for axis in (None, *range(len(shape))):
        assert_equal(stats.median(values, axis), np.nanmedian(values, axis))
        for q in (0.0, 0.02, 0.25, 0.5, 0.9, 1.0):
            expected = np.nanquantile(values, q, axis=axis)
            assert_allclose(stats.quantile(values, q, axis), expected, rtol=1e-14)


def test_sigma_ignores_a_minority_of_outliers() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(0, 2.0, 4000)
    values[:800] = 1e9
    assert float(stats.sigma(values)) == pytest.approx(2.0, rel=0.5)


def test_runs_and_joined() -> None:
    flags = np.array([True, False, True, True, False, False, True])
    assert stats.runs(flags) == [(0, 1), (2, 4), (6, 7)]
    assert stats.runs(stats.joined(flags, 1)) == [(0, 4), (6, 7)]
    assert stats.runs(np.zeros(3, dtype=bool)) == []


def test_carried_stops_at_its_limit() -> None:
    values = np.array([NAN, 1.0, NAN, NAN, NAN, 2.0])
    assert np.array_equal(stats.carried(values, 2), [NAN, 1, 1, 1, NAN, 2], equal_nan=True)
    assert np.array_equal(stats.carried(values), [NAN, 1, 1, 1, 1, 2], equal_nan=True)


def test_rolling_median_steps_over_holes_and_spikes() -> None:
    values = np.array([1.0, NAN, 1.0, 50.0, 1.0, NAN, 1.0, 1.0])
    assert set(stats.rolling_median(values, 3)[np.isfinite(values)]) == {1.0}


def test_trailing_median_knows_only_the_past() -> None:
    values = np.array([1.0] * 10 + [9.0] * 10)
    past = stats.trailing_median(values, 5)
    assert past[10] == 1.0
    assert past[19] == 9.0
    assert np.isnan(past[0])


@pytest.mark.parametrize(
    ("values", "usual"), [([5.0], 0.0), ([0.0, 9.0], 0.0), ([1.0, 2.0, 90.0], 2.0), ([], 0.0)]
)
def test_background_is_what_the_quieter_peers_do(values: list[float], usual: float) -> None:
    assert stats.background(np.array(values)) == usual


@pytest.mark.parametrize("width", [1, 2, 3, 5, 50])
def test_a_running_mean_has_the_length_of_its_series(width: int) -> None:
    for size in (0, 1, 2, 4, 9):
        assert stats.smoothed(np.ones(size), width).tolist() == [1.0] * size


@pytest.mark.parametrize(
    ("values", "limit", "filled"),
    [
        ((10, NAN, 20), 1, (10, 15, 20)),
        ((0, NAN, 1), 1, (0, 0, 1)),  # one error is not two halves
        ((0.5, NAN, 1.5), 1, (0.5, 1.0, 1.5)),
        ((10, NAN, 3), 1, (10, 10, 3)),  # a reset tells nothing of the time before it
        ((10, NAN, NAN, 40), 1, (10, 10, NAN, 40)),
        ((10, NAN, NAN, 40), 2, (10, 20, 30, 40)),
        ((NAN, 10, NAN), 1, (NAN, 10, 10)),
    ],
)
def test_a_counter_grows_evenly_over_a_hole(
    values: tuple[float, ...], limit: int, filled: tuple[float, ...]
) -> None:
    assert_equal(stats.counted(np.array([values]), limit)[0], filled)

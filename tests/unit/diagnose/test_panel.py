"""Panels of series: increases, buckets, labels and their hosts."""

from __future__ import annotations

import numpy as np
import pytest

from ray_sentinel.diagnose.panel import SeriesOwner, SeriesPanel, listed
from ray_sentinel.diagnose.quantities import QUANTITIES
from ray_sentinel.diagnose.series import Samples, Selector, bucketed
from ray_sentinel.diagnose.view import aliases, gpu_of, host_of

NAN = float("nan")


def counter(*values: float) -> SeriesPanel:
    times = 10.0 * np.arange(len(values))
    row = SeriesOwner("n1", "", "", (("host", "n1"),))
    return SeriesPanel(
        QUANTITIES["mem.oom"], "hw_oom_kills_total", (row,), times, np.array([values])
    )


@pytest.mark.parametrize(
    ("values", "increases"),
    [
        ((5, 5, 7, 7), (NAN, 0, 2, 0)),
        ((5, 8, 1, 2), (NAN, 3, 1, 1)),  # reset: what is there now was counted since
        ((9e7, 0, 9e7, 9e7 + 3), (NAN, 0, 0, 3)),  # a glitch of the source counts for nothing
        ((5, NAN, NAN, 8), (NAN, NAN, NAN, 3)),
        ((NAN, NAN, NAN, NAN), (NAN, NAN, NAN, NAN)),
    ],
)
def test_increases(values: tuple[float, ...], increases: tuple[float, ...]) -> None:
    assert np.array_equal(counter(*values).increases()[0], increases, equal_nan=True)


def test_the_query_of_a_counter_is_its_rate() -> None:
    panel = counter(1, 2)
    assert panel.promql(panel.rows[0]) == 'rate(hw_oom_kills_total{host="n1"}[5m])'


def test_buckets_reduce_and_keep_bad_samples_apart_from_missing_ones() -> None:
    series = Samples({}, np.array([1.0, 4.0, 11.0, 35.0]), np.array([1.0, 3.0, NAN, 7.0]))
    times = np.array([10.0, 20.0, 30.0, 40.0])
    # A bucket is (t - step, t], so the one that ends at 10 holds 1 and 4.
    assert np.array_equal(
        bucketed(series, times, 10.0, "avg"), [2.0, np.inf, NAN, 7.0], equal_nan=True
    )
    assert bucketed(series, times, 10.0, "last")[0] == 3.0
    assert bucketed(series, times, 10.0, "max")[0] == 3.0
    assert bucketed(series, times, 10.0, "min")[0] == 1.0


def test_a_selector_is_quoted() -> None:
    assert str(Selector("a", (("b", 'x"\\\n'),))) == 'a{b="x\\"\\\\\\n"}'


def test_addresses_become_hosts_where_a_series_carries_both() -> None:
    known = aliases([
        {"host": "n1", "instance": "10.0.0.1:9400"},
        {"host": "n2", "instance": "10.0.0.2:9400"},
        {"host": "n3", "instance": "10.0.0.9:9400"},
        {"host": "n4", "instance": "10.0.0.9:9401"},
    ])  # fmt: skip
    assert host_of({"ip": "10.0.0.1", "GpuIndex": "3"}, known) == "n1"
    assert host_of({"instance": "10.0.0.2:55080"}, known) == "n2"
    assert host_of({"ip": "10.0.0.9"}, known) == "10.0.0.9"
    assert host_of({}, known) == ""
    assert gpu_of({"GpuIndex": "3"}) == "3"


def test_long_lists_are_cut() -> None:
    assert listed([str(number) for number in range(9)], 3) == "0, 1, 2 and 6 more"


def test_the_rate_after_a_hole_is_the_mean_over_the_hole() -> None:
    rates = counter(10, 20, NAN, NAN, 50, 60).rates()[0]
    assert np.array_equal(rates, (NAN, 1.0, NAN, NAN, 1.0, 1.0), equal_nan=True)

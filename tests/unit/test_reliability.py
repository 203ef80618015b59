"""What the bench of confidence computes: intervals, bins, scores and the monotone map."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from bench.reliability import bins, brier, calibrated, gap, isotonic, wilson


class Told(NamedTuple):
    """A claim."""

    confidence: float
    is_right: bool


def told(confidence: float, right: int, wrong: int) -> list[Told]:
    return [Told(confidence, True)] * right + [Told(confidence, False)] * wrong


def test_wilson_is_the_published_interval() -> None:
    low, high = wilson(8, 10)
    assert (low, high) == pytest.approx((0.490, 0.943), abs=0.001)
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(10, 10)[1] == 1.0


def test_a_bin_holds_its_lower_bound() -> None:
    found = bins([*told(0.85, 1, 1), *told(0.899, 2, 0), *told(0.9, 0, 1)])
    assert [(block.count, block.observed) for block in found] == [(4, 0.75), (1, 0.0)]


def test_brier_score_and_gap() -> None:
    claims = told(0.8, 4, 1)
    assert brier(claims) == pytest.approx((4 * 0.04 + 0.64) / 5)
    assert brier(claims, lambda _: 1.0) == pytest.approx(0.2)
    assert gap(claims) == pytest.approx(0.0)
    assert gap(told(0.9, 1, 1)) == pytest.approx(0.4)


def test_what_falls_where_it_should_rise_is_pooled() -> None:
    steps = isotonic([*told(0.5, 3, 1), *told(0.6, 1, 3), *told(0.9, 4, 0)])
    assert [(block.count, block.observed) for block in steps] == [(8, 0.5), (4, 1.0)]
    assert steps[0].stated == pytest.approx(0.55)


def test_the_map_rises_and_is_never_certain() -> None:
    told_as = calibrated(isotonic([*told(0.3, 0, 5), *told(0.6, 3, 3), *told(0.9, 9, 0)]))
    values = [told_as(at / 20) for at in range(21)]
    assert values == sorted(values)
    assert values[0] > 0.0
    assert values[-1] < 1.0
    assert told_as(0.6) == pytest.approx(0.5)

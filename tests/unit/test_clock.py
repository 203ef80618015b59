"""Clocks that are not set, beside one that is."""

from __future__ import annotations

import time

import pytest

from ray_sentinel.clock import SHIFT_STEP, BootClock, FakeClock, KeptMoment, SteadyClock

STEPS = pytest.mark.parametrize("step", [-86_400.0, -3600.0, 3600.0, 86_400.0])


@STEPS
def test_a_steady_clock_is_not_set(step: float) -> None:
    wall = FakeClock()
    clock = SteadyClock(wall)
    begun = clock.now()
    assert begun == wall.now()
    wall.advance(5.0)
    wall.step(step)
    wall.advance(5.0)
    assert clock.now() == begun + 10.0
    assert clock.shift == step
    assert clock.shown(clock.now()) == wall.now()
    wall.step(-step)
    assert clock.shift == 0.0


def test_what_is_shown_stays_the_same_while_a_clock_is_slewed() -> None:
    wall = FakeClock()
    clock = SteadyClock(wall)
    for _ in range(10):
        wall.step(SHIFT_STEP / 20)
        assert clock.shown(7.0) == 7.0
    wall.step(SHIFT_STEP)
    assert clock.shown(7.0) == pytest.approx(7.0 + 1.5 * SHIFT_STEP)


@STEPS
def test_a_moment_stays_as_long_ago_as_it_is(step: float) -> None:
    wall = FakeClock()
    kept, at = KeptMoment(wall), wall.now()
    wall.advance(2.0)
    assert kept.today(at) == at
    wall.step(step)
    wall.advance(60.0)
    assert kept.today(at) == wall.now() - 62.0
    another = wall.now() - 1.0
    assert kept.today(another) == another


def test_the_boot_clock_passes() -> None:
    clock = BootClock()
    assert clock.monotonic() >= time.monotonic() - 1.0, "suspended time counts too"
    assert SteadyClock(clock).now() == pytest.approx(time.time(), abs=5.0)

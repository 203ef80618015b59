"""Clocks that are not set, beside one that is."""

from __future__ import annotations

import time

import pytest

from ray_sentinel.clock import (
    SHIFT_STEP,
    BootClock,
    FakeClock,
    KeptMoment,
    SteadyClock,
    WallHistory,
)

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


def test_what_a_clock_said_is_placed_by_what_it_was_set_to_then() -> None:
    wall = FakeClock()
    history = WallHistory(wall)
    begun = wall.now()
    for step in (3600.0, -7200.0):
        wall.advance(10_000.0)
        history.poll()
        wall.step(step)
        history.poll()
    wall.advance(10_000.0)
    assert history.now() == 30_000.0
    assert history.earliest(begun + 100.0) == 100.0
    assert history.earliest(begun - 100.0) == -100.0, "before it was made"
    assert history.earliest(begun + 10_000.0 + 1800.0) is None, "it was passed over"
    assert history.earliest(begun + 15_000.0) == 11_400.0
    assert history.earliest(begun + 23_000.0) == 19_400.0, "said twice"
    assert history.earliest(begun + 25_000.0) == 28_600.0
    assert history.earliest(wall.now()) == history.now()
    assert history.earliest(wall.now() + 5.0) is None
    assert history.earliest(wall.now() + 5.0, ahead=10.0) == history.now() + 5.0


def test_how_often_a_clock_is_set_does_not_matter() -> None:
    wall = FakeClock()
    history = WallHistory(wall)
    for _ in range(1000):
        wall.advance(1.0)
        wall.step(60.0)
        history.poll()
    assert history.earliest(wall.now()) == 1000.0
    assert history.earliest(wall.now() - 61.0) == 999.0

"""How long is waited between attempts."""

from __future__ import annotations

import pytest

from ray_sentinel.backoff import Backoff


def test_delays_grow_to_the_most() -> None:
    backoff = Backoff(first=1.0, most=120.0, factor=5.0)
    assert backoff.delays(5) == (1.0, 5.0, 25.0, 120.0, 120.0)
    assert backoff.delays(0) == ()


@pytest.mark.parametrize("failures", [100, 10_000, 10**9])
def test_any_number_of_failures_has_a_delay(failures: int) -> None:
    assert Backoff(first=0.5, most=60.0, factor=10.0).delay(failures) == 60.0


def test_before_the_first_failure_it_is_the_first_delay() -> None:
    assert Backoff(first=3.0, most=60.0).delay(0) == 3.0


def test_the_draw_moves_a_delay_up_or_down_and_never_beyond_the_most() -> None:
    backoff = Backoff(first=10.0, most=25.0, jitter=0.5)
    draws = iter((0.0, 0.5, 1.0))
    assert [backoff.delay(1, draws.__next__) for _ in range(3)] == [5.0, 10.0, 15.0]
    assert backoff.delay(2, lambda: 1.0) == 25.0
    assert len({backoff.delay(1) for _ in range(20)}) > 1


def test_without_jitter_nothing_is_drawn() -> None:
    assert Backoff(first=1.0, most=9.0).delay(1, lambda: pytest.fail("drawn")) == 1.0

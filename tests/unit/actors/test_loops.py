"""What a loop says of steps that fail again and again."""

from __future__ import annotations

import threading
import time

from ray_sentinel.actors.loops import QUIET_SECONDS, Complaints, Loop


def test_the_same_failure_is_new_once_in_a_while() -> None:
    complaints = Complaints()
    assert complaints.is_new("OSError: full", 0.0)
    assert not complaints.is_new("OSError: full", QUIET_SECONDS - 1)
    assert complaints.is_new("OSError: else", QUIET_SECONDS - 1)
    assert complaints.is_new("OSError: full", QUIET_SECONDS)


def test_failures_that_name_something_else_each_time_do_not_pile_up() -> None:
    complaints = Complaints()
    for second in range(100_000):
        assert complaints.is_new(f"KeyError: {second}", float(second))
    assert len(complaints) <= QUIET_SECONDS + 1


def test_being_woken_often_does_not_put_the_next_regular_step_off() -> None:
    interval, stepped = 0.5, threading.Semaphore(0)
    loop = Loop(interval, stepped.release, name="woken")
    try:
        for _ in range(9):
            assert stepped.acquire(timeout=30)
            loop.wake()
        assert stepped.acquire(timeout=30)
        begun = time.monotonic()
        assert stepped.acquire(timeout=30)
        assert time.monotonic() - begun < 5 * interval
    finally:
        loop.stop(30)

"""What a loop says of steps that fail again and again."""

from __future__ import annotations

import threading
import time

from ray_sentinel.actors.loops import QUIET_SECONDS, Complaints, Loop, Newest


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


def test_what_is_offered_during_a_long_step_is_passed_over_but_for_the_newest() -> None:
    taken: list[int] = []
    gate, begun, ended = threading.Event(), threading.Event(), threading.Event()

    def step(number: int) -> None:
        taken.append(number)
        begun.set()
        assert gate.wait(30)
        if number == 999:
            ended.set()

    newest = Newest(step, name="newest")
    newest.offer(0)
    assert begun.wait(30)
    before = time.monotonic()
    for number in range(1, 1000):
        newest.offer(number)
    assert time.monotonic() - before < 5, "offering does not wait"
    gate.set()
    assert ended.wait(30)
    assert taken == [0, 999]
    assert newest.stop(30)


def test_a_step_that_fails_does_not_end_it() -> None:
    taken = threading.Event()

    def step(number: int) -> None:
        if number == 0:
            raise ValueError("once")
        taken.set()

    newest = Newest(step, name="fails")
    newest.offer(0)
    while not taken.wait(0.01):
        newest.offer(1)
    assert newest.stop(30)


def test_a_step_that_hangs_is_left_behind() -> None:
    gate, begun = threading.Event(), threading.Event()

    def step(number: int) -> None:
        begun.set()
        assert gate.wait(30)

    newest = Newest(step, name="hangs")
    newest.offer(0)
    assert begun.wait(30)
    assert not newest.stop(0.05), "it says that it has not ended"
    newest.offer(1)
    gate.set()
    assert newest.stop(30)

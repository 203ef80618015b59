"""Calls that may hang: bounded in time and in number."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from ray_sentinel.bounded import Bounded, within

LONG = 30.0
Hanging = Callable[..., threading.Event]


def failing() -> int:
    raise PermissionError(13, "Permission denied")


def test_a_call_that_hangs_does_not_hold_up_the_others(hanging: Hanging) -> None:
    gate = hanging("dead")
    bounded: Bounded[str, int] = Bounded(2.5)
    values, failures = bounded.run(
        {"dead": lambda: int(gate.wait(LONG)), "a": lambda: 1, "b": failing, "c": lambda: 3}
    )
    assert values == {"a": 1, "c": 3}
    assert failures == {"dead": "did not return within 2.5 s", "b": "Permission denied"}


def test_it_is_not_made_again_before_it_has_returned(hanging: Hanging) -> None:
    gate = hanging("dead")
    made = []

    def dead() -> int:
        made.append(1)
        gate.wait(LONG)
        return 7

    bounded: Bounded[str, int] = Bounded(1.0)
    bounded.run({"dead": dead})
    assert bounded.run({"dead": dead})[1] == {"dead": "an earlier read has not returned yet"}
    assert len(made) == 1
    gate.set()
    assert bounded.stuck["dead"].result(LONG) == 7
    hanging()
    assert bounded.run({"dead": dead}) == ({"dead": 7}, {})


def test_the_number_of_hanging_calls_is_bounded(hanging: Hanging) -> None:
    gate = hanging(*range(20))
    bounded: Bounded[int, bool] = Bounded(1.0, most=3)
    made = []

    def dead() -> bool:
        made.append(1)
        return gate.wait(LONG)

    for _ in range(3):
        values, failures = bounded.run(dict.fromkeys(range(20), dead))
        assert not values
        assert len(failures) == 20
    assert len(made) == len(bounded.stuck) == 3
    assert bounded.run({99: lambda: True})[1] == {99: "3 reads hang already; no more are started"}


def test_many_calls_that_return_are_all_made(hanging: Hanging) -> None:
    hanging()
    bounded: Bounded[int, int] = Bounded(1.0, most=2)
    values, failures = bounded.run({number: lambda: 1 for number in range(50)})
    assert len(values) == 50
    assert not failures


def test_a_real_deadline() -> None:
    gate = threading.Event()
    _, failures = Bounded[str, bool](0.01).run({"dead": lambda: gate.wait(LONG)})
    assert failures == {"dead": "did not return within 0.01 s"}
    gate.set()


def test_a_call_is_waited_for_within_its_time() -> None:
    gate = threading.Event()
    assert within(LONG, lambda: 7) == 7
    with pytest.raises(PermissionError):
        within(LONG, failing)
    with pytest.raises(KeyError):
        within(LONG, lambda: {}["x"])
    with pytest.raises(TimeoutError, match=r"no answer within 0\.05 s"):
        within(0.05, lambda: gate.wait(LONG))
    gate.set()

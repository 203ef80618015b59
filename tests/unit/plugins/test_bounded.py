from __future__ import annotations

import threading
from collections.abc import Callable

from ray_sentinel_plugins._bounded import Bounded

SHORT = 0.05
LONG = 10.0


def failing() -> int:
    raise PermissionError(13, "Permission denied")


def test_a_call_that_hangs_does_not_hold_up_the_others() -> None:
    gate = threading.Event()
    bounded: Bounded[str, int] = Bounded(SHORT)
    values, failures = bounded.run(
        {"dead": lambda: int(gate.wait(LONG)), "a": lambda: 1, "b": failing, "c": lambda: 3}
    )
    assert values == {"a": 1, "c": 3}
    assert failures == {"dead": "did not return within 0.05 s", "b": "Permission denied"}
    gate.set()


def test_it_is_not_made_again_before_it_has_returned() -> None:
    gate = threading.Event()
    made = []

    def dead() -> int:
        made.append(1)
        gate.wait(LONG)
        return 7

    bounded: Bounded[str, int] = Bounded(SHORT)
    bounded.run({"dead": dead})
    assert bounded.run({"dead": dead})[1] == {"dead": "an earlier read has not returned yet"}
    assert len(made) == 1
    gate.set()
    assert bounded.stuck["dead"].ended.wait(LONG)
    assert bounded.run({"dead": dead}) == ({"dead": 7}, {})


def test_the_number_of_hanging_calls_is_bounded() -> None:
    gate = threading.Event()
    running = threading.active_count()
    bounded: Bounded[int, bool] = Bounded(SHORT, most=3)
    hanging: Callable[[], bool] = lambda: gate.wait(LONG)  # noqa: E731
    for _ in range(3):
        values, failures = bounded.run(dict.fromkeys(range(20), hanging))
        assert not values
        assert len(failures) == 20
        assert threading.active_count() - running <= 3
    assert bounded.run({99: lambda: True})[1] == {99: "3 reads hang already; no more are started"}
    gate.set()


def test_many_calls_that_return_are_all_made() -> None:
    bounded: Bounded[int, int] = Bounded(LONG, most=2)
    values, failures = bounded.run({number: lambda: 1 for number in range(50)})
    assert len(values) == 50
    assert not failures

"""Engines that are restarted on the way, one that never is, and snapshots that take their time."""

from __future__ import annotations

import threading

from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import AnyEvent
from ray_sentinel.engine.state import unpacked


def restarted(engine: Engine) -> Engine:
    """Another one, which was given nothing but the snapshot."""
    state, problem = unpacked(engine.state.packed())
    assert problem == ""
    return Engine(engine.config, state=state)


MOST_STATE = 1 << 30


class SlowPacking:
    """A snapshot of an engine that is packed step by step, while the engine goes on."""

    def __init__(self, engine: Engine) -> None:
        self._wanted = engine.state.packed()
        self._steps = engine.state.cut(MOST_STATE, threading.Lock()).steps()

    def over(self, steps: int) -> bool:
        """Go on by so many steps; whether it is packed, and is as if it had been packed at once."""
        for _ in range(steps):
            try:
                next(self._steps)
            except StopIteration as end:
                assert end.value == self._wanted
                return True
        return False


def goes_on_alike(events: list[AnyEvent], cuts: set[int]) -> None:
    """Play ``events`` to an engine that is never stopped, and to one that is restarted before each
    of the events whose numbers are ``cuts``, at which the other one's snapshot is begun."""
    steady, stopped = Engine(), Engine()
    packing: list[SlowPacking] = []
    for number, event in enumerate(events):
        if number in cuts:
            stopped = restarted(stopped)
            assert stopped.unanswered() == steady.unanswered()
            packing.append(SlowPacking(steady))
        told = steady.handle(event)
        assert stopped.handle(event) == told, f"event {number}: {type(event).__name__}"
        assert not [part for part in steady.failures.told if part.startswith("handling")]
        packing = [one for one in packing if not one.over(number % 3)]
    assert all(one.over(1 << 20) for one in packing)
    assert stopped.status(steady.now) == steady.status(steady.now)
    assert stopped.alerts() == steady.alerts()
    one, other = stopped.state.packed(), steady.state.packed()
    assert (unpacked(one)[0], len(one)) == (unpacked(other)[0], len(other))

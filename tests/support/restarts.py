"""Engines that are restarted on the way, and one that never is."""

from __future__ import annotations

from ray_sentinel.actors.coordinator.engine_loop import handled
from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import AnyEvent
from ray_sentinel.engine.state import unpacked


def restarted(engine: Engine) -> Engine:
    """Another one, which was given nothing but the snapshot."""
    state, problem = unpacked(engine.state.packed())
    assert problem == ""
    return Engine(engine.config, state=state)


def goes_on_alike(events: list[AnyEvent], cuts: set[int]) -> None:
    """Play ``events`` to an engine that is never stopped, and to one that is restarted before each
    of the events whose numbers are ``cuts``."""
    steady, stopped = Engine(), Engine()
    for number, event in enumerate(events):
        if number in cuts:
            stopped = restarted(stopped)
            assert stopped.unanswered() == steady.unanswered()
        told = handled(steady, event)
        assert handled(stopped, event) == told, f"event {number}: {type(event).__name__}"
    assert stopped.status(steady.now) == steady.status(steady.now)
    assert stopped.alerts() == steady.alerts()
    one, other = stopped.state.packed(), steady.state.packed()
    assert (unpacked(one)[0], len(one)) == (unpacked(other)[0], len(other))

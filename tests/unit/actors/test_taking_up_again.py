"""A restarted coordinator asks again for what was not answered, once there are agents to ask."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ray_sentinel.actors.coordinator.coordination import Coordination
from ray_sentinel.clock import FakeClock
from ray_sentinel.engine.events import Tick


def restarted(clock: FakeClock) -> tuple[Any, list[str], list[Tick]]:
    """A coordinator's parts as they are right after a restart, without Ray."""
    asked: list[str] = []
    ticks: list[Tick] = []
    subject: Any = Coordination.__new__(Coordination)
    subject._clock = clock
    subject._hold_ticks_until = clock.now() + 3.0
    subject._pending = ["stacks", "capture"]
    subject._brain = SimpleNamespace(feed=ticks.append, act=asked.append)
    subject._roster = SimpleNamespace(all_heard=lambda nodes: subject.heard)
    subject._fleet = SimpleNamespace(nodes=lambda: {"n1": 1}, handles=lambda: subject.handles)
    subject.heard, subject.handles = False, {}
    return subject, asked, ticks


def test_it_waits_until_every_agent_is_back() -> None:
    clock = FakeClock()
    subject, asked, ticks = restarted(clock)
    subject._tick()
    subject.heard = True
    subject._tick()
    assert (asked, ticks) == ([], []), "heard of, but there is no handle to ask by"
    subject.handles = {"n1": object()}
    subject._tick()
    subject._tick()
    assert asked == ["stacks", "capture"], "once"
    assert len(ticks) == 2


def test_it_does_not_wait_for_ever() -> None:
    clock = FakeClock()
    subject, asked, ticks = restarted(clock)
    clock.advance(3.5)
    subject._tick()
    assert asked == ["stacks", "capture"]
    assert len(ticks) == 1

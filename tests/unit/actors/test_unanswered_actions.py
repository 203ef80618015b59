"""A restarted coordinator asks again for what was not answered, once there are agents to ask."""

from __future__ import annotations

import pytest

from ray_sentinel.actors.coordinator.engine_loop import RECOVERY_GRACE, EngineLoop
from ray_sentinel.clock import FakeClock
from ray_sentinel.engine.actions import AnyAction, ProbeNode, TakeStacks
from ray_sentinel.engine.engine import Engine

STACKS = TakeStacks(incident="1", round=1, ranks=())
PROBE = ProbeNode(node_id="n1")


class Restarted:
    """The loop as it is right after a restart, with what it asks for."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.asked: list[AnyAction] = []
        self.loop = EngineLoop(Engine(), self.clock, self.asked.append, None, 1 << 20)

    def resume(self, *, restarted: bool = True) -> None:
        self.loop.resume([STACKS, PROBE], restarted=restarted)


@pytest.fixture
def subject() -> Restarted:
    return Restarted()


def test_it_waits_until_every_agent_is_back(subject: Restarted) -> None:
    subject.resume()
    subject.loop.tick(lambda: False)
    assert subject.asked == []
    assert subject.loop.last_cycle is None, "no time passed for the engine"
    subject.loop.tick(lambda: True)
    assert subject.loop.last_cycle is not None
    subject.loop.tick(lambda: True)
    assert subject.asked == [STACKS, PROBE], "once"


def test_it_does_not_wait_for_ever(subject: Restarted) -> None:
    subject.resume()
    subject.clock.advance(RECOVERY_GRACE + 0.5)
    subject.loop.tick(lambda: False)
    assert subject.asked == [STACKS, PROBE]
    assert subject.loop.last_cycle is not None


def test_one_that_takes_an_older_log_over_has_nobody_to_wait_for(subject: Restarted) -> None:
    subject.resume(restarted=False)
    subject.loop.tick(lambda: False)
    assert subject.asked == [STACKS, PROBE]

"""Time in which nobody watched is no pause of a job: after it a hang is found as soon as before."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ray_sentinel.engine.events import AnyEvent, Resumed, SnapshotReceived, StacksTaken
from tests.support.engine_sim import Sim

AWAY = 100.0


class Blind(Sim):
    """A job that attaches nowhere, whose pauses are learned; at times nobody hears its nodes."""

    def __init__(self) -> None:
        super().__init__(attached=False)
        self.deaf = False
        """The coordinator is away."""
        self.alone = False
        """The agents are away."""

    def feed(self, event: AnyEvent) -> None:
        theirs = isinstance(event, SnapshotReceived | StacksTaken)
        if not self.deaf and not (self.alone and theirs):
            super().feed(event)

    @property
    def timeout(self) -> float:
        return self.engine.view.jobs["job", 0].timeout()


def coordinator_is_away(sim: Blind) -> None:
    sim.deaf = True
    sim.run(AWAY)
    sim.deaf = False
    sim.feed(Resumed(time=sim.now))


def agents_are_away(sim: Blind) -> None:
    sim.alone = True
    sim.run(AWAY)
    sim.alone = False


def job_waits(sim: Blind) -> None:
    sim.held = True
    sim.run(AWAY)
    sim.held = False


@pytest.mark.parametrize("away", [coordinator_is_away, agents_are_away])
def test_after_absences_a_hang_is_named_as_soon_as_before(away: Callable[[Blind], None]) -> None:
    sim = Blind()
    sim.run(60)
    before = sim.timeout
    for _ in range(3):
        away(sim)
        sim.run(30)
    assert sim.timeout == pytest.approx(before, abs=5.0)
    known = len(sim.incidents())
    sim.stick(2)
    sim.run(30)
    *_, incident = sim.incidents()[known:]
    assert incident.verdict is not None
    assert [culprit.rank for culprit in incident.verdict.culprits] == [2]


def test_a_pause_that_was_seen_twice_is_waited_for() -> None:
    sim = Blind()
    sim.run(60)
    for _ in range(2):
        job_waits(sim)
        sim.run(30)
    assert sim.timeout >= 1.4 * AWAY

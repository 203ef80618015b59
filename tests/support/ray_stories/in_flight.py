"""Many calls in flight, of which the driver takes whatever ends first."""

from __future__ import annotations

from collections.abc import Callable

from ray_sentinel.model.ray_calls import RayCall
from ray_sentinel.model.stacks import StackFact
from tests.support.ray_stories.jobs import WARM
from tests.support.ray_story import (
    COMPUTES,
    GETS,
    SELECTS,
    STOPPED,
    RayStory,
    StoryProcess,
    actors,
    driver,
)


class InFlight:
    """Rollouts are always in flight, and the driver takes the samples of whoever has some; what the
    first one was called for never ends. ``hold`` begins its trouble."""

    def __init__(self, *, ranks: int = 0) -> None:
        """So many ``ranks`` of trainers, which make a process group, learn meanwhile."""
        self.main, self.workers = driver(), actors("Rollout", 3, 10)
        self.first = self.workers[0]
        self.trainers = actors("Trainer", ranks, 50, ranks=True)
        self.story = RayStory([self.main, *self.workers, *self.trainers])
        self.stopped_at: float | None = None
        self.main.stack = SELECTS
        self.run(WARM)

    def hold(self, stack: StackFact = STOPPED, state: str = "T") -> None:
        """The first one cannot go on from now on."""
        self.first.begins(_method_of(self.first), self.story.now, stack)
        self.first.state, self.first.goes_on, self.stopped_at = state, False, self.story.now

    def hold_rank(self, stack: StackFact = STOPPED, state: str = "T") -> None:
        """The same of the first trainer, instead of a rollout."""
        self.first = self.trainers[0]
        self.hold(stack, state)

    def go_on(self) -> None:
        """It runs again."""
        self.first.state, self.stopped_at = "S", None
        self.first.stack, self.first.goes_on = COMPUTES, True

    def run(self, seconds: int, each: Callable[[], object] = lambda: None) -> None:
        """Let time pass; ``each`` happens at the end of every second."""

        def second() -> None:
            self._live()
            each()

        self.story.run(seconds, second)

    def _live(self) -> None:
        """One second: rollouts generate for three of four, each in its turn. The driver waits for
        the trainers for a while, which looks as if it waited for all that it has called."""
        story = self.story
        now, story.calls = int(story.now), self._calls_of_before()
        self.main.stack = GETS if now // 10 % 2 else SELECTS
        self.main.works(story.now)
        for one in (*self.workers, *self.trainers):
            if one is self.first and self.stopped_at is not None:
                continue
            rests = (now + one.number) % 4 == 3
            if rests != (one.title == one.kind):
                if rests:
                    one.rests(story.now)
                else:
                    one.begins(_method_of(one), story.now, COMPUTES)
                    one.goes_on = True
            if not rests:
                story.call(self.main, one, one.title.partition(".")[2])
                one.works(story.now)

    def _calls_of_before(self) -> list[RayCall]:
        """The driver's own, and what does not go on."""
        begun = self.stopped_at
        held = [c for c in self.story.calls if c.pid == self.first.pid] if begun is not None else []
        self.story.drives(self.main)
        if begun is not None and not held:
            self.story.call(self.main, self.first, _method_of(self.first))
            held = self.story.calls[1:]
        return [self.story.calls[0], *held]


def _method_of(one: StoryProcess) -> str:
    return "generate" if one.rank is None else "update"


def held_in_flight(stack: StackFact = STOPPED, state: str = "T") -> RayStory:
    """One of many in flight cannot go on, and the others do."""
    flight = InFlight()
    flight.hold(stack, state)
    flight.run(120)
    return flight.story

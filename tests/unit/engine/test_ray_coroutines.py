"""A coroutine of an actor that never ends, while other calls of the same actor begin and end."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from ray_sentinel.model.ray_calls import EndedCalls
from tests.support import ray_story
from tests.support.ray_story import COMPUTES, RayStory, StoryProcess, actors, driver

WARM = 60


@dataclass
class Gateway:
    """An actor whose ``generate`` the driver awaits; a thread of the driver asks for its health
    each second. ``longest`` is what the longest ``generate`` took before."""

    longest: float = 1.0
    main: StoryProcess = field(default_factory=driver)
    beside: tuple[StoryProcess, ...] = ()

    def __post_init__(self) -> None:
        (self.actor,) = actors("Gateway", 1, 10)
        self.actor.stack = msgspec.structs.replace(ray_story.RESTS, tid=99, switches=7, rests=True)
        self.actor.wakes = True
        self.story = RayStory([self.main, self.actor, *self.beside])
        self.story.run(WARM, lambda: self.second(hangs=False))

    def hangs(self, seconds: int) -> RayStory:
        """The call of ``generate`` that begins now does not end."""
        self.story.drives(self.main)
        self.story.call(self.main, self.actor, "generate")
        self._hung = self.story.calls[-1]
        self.story.run(seconds, lambda: self.second(hangs=True))
        return self.story

    def second(self, *, hangs: bool) -> None:
        story = self.story
        story.drives(self.main)
        if hangs:
            story.calls.append(self._hung)
        else:
            story.call(self.main, self.actor, "generate")
        story.call(self.main, self.actor, "health")
        for one in self.beside:
            story.call(self.main, one, "step")
        count, generated = int(story.now - ray_story.START), int(story.now - ray_story.START)
        if hangs:
            generated = WARM
        story.ended = {
            "Gateway.health": EndedCalls(count=count, longest=0.1, last_at=story.now - 0.5),
            "Gateway.generate": EndedCalls(
                count=generated,
                longest=self.longest,
                last_at=ray_story.START + generated - 0.5,
            ),
        }
        story.changes = (int(story.now),)


def test_is_named_with_its_method_after_two_minutes() -> None:
    story = Gateway().hangs(180)
    (culprit,) = story.culprits()
    assert story.incident().kind == "actor-stuck"
    assert (culprit.actor, culprit.method) == ("Gateway 0", "Gateway.generate")
    assert story.chain() == [("driver", "Gateway.generate at Gateway 0", "ray.get")]
    assert story.incident().summary.startswith("Gateway 0 on host1 stands still in Gateway.gen")
    confirmed = story.incident().confirmed_at
    assert confirmed is not None
    assert 120.0 < confirmed - (ray_story.START + WARM) <= 130.0


def test_is_not_named_before_ten_times_its_longest_call() -> None:
    gateway = Gateway(longest=25.0)
    assert gateway.hangs(220).engine.incidents() == ()
    gateway.story.run(60, lambda: gateway.second(hangs=True))
    assert [one.method for one in gateway.story.culprits()] == ["Gateway.generate"]


def test_is_not_named_while_another_actor_runs_a_call() -> None:
    """That may bring what the coroutine awaits."""
    (worker,) = actors("Worker", 1, 20)
    worker.begins("step", ray_story.START, COMPUTES)
    worker.goes_on = True
    assert Gateway(beside=(worker,)).hangs(240).engine.incidents() == ()

"""A driver that has no actors of its own, and calls one that another job has made."""

from __future__ import annotations

from ray_sentinel.model.ray_calls import EndedCalls
from tests.support import ray_story
from tests.support.ray_story import OTHER_JOB, SLEEPS, RayStory, actors, driver


class Registry:
    """The driver calls ``put`` of the lent actor over and over; each call takes a second."""

    def __init__(self) -> None:
        self.main = driver()
        (self.actor,) = actors("Registry", 1, 30, OTHER_JOB)
        self.story = RayStory([self.main, self.actor])

    def goes_on(self, seconds: int) -> RayStory:
        """Only Ray's table shows the calls: no process of the job has a title."""
        story = self.story

        def second() -> None:
            story.drives(self.main)
            story.call(self.main, self.actor, "put")
            self.actor.works(story.now)
            count = int(story.now - ray_story.START)
            story.ended = {
                "Registry.put": EndedCalls(count=count, longest=1.0, last_at=story.now - 0.5)
            }

        story.run(seconds, second)
        return story

    def hangs(self, seconds: int) -> RayStory:
        """The call that begins now does not end."""
        self.story.drives(self.main)
        self.actor.begins("put", self.story.now, SLEEPS)
        self.story.call(self.main, self.actor, "put")
        self.story.run(seconds)
        return self.story


def test_is_named_as_soon_as_an_actor_of_the_job() -> None:
    registry = Registry()
    hung_at = registry.goes_on(120).now
    story = registry.hangs(30)
    (culprit,) = story.culprits()
    assert (culprit.actor, culprit.method) == ("Registry 0", "Registry.put")
    confirmed = story.incident().confirmed_at
    assert confirmed is not None
    assert 15.0 < confirmed - hung_at <= 20.0


def test_is_not_looked_at_while_calls_begin_and_end() -> None:
    registry = Registry()
    looks = registry.goes_on(60).looks
    assert registry.goes_on(240).looks == looks
    assert registry.story.engine.incidents() == ()

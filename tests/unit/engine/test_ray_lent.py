"""A driver that has no actors of its own, and calls one that another job has made."""

from __future__ import annotations

import msgspec
import pytest

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


class Pricer:
    """A replica of Ray Serve made by a job that has ended, or ``lives`` and waits for nothing; the
    driver of this job waits for its answers. Serve's own metrics tell of its requests."""

    def __init__(self, *, lives: bool = False) -> None:
        self.main = driver()
        (self.replica,) = actors("ServeReplica:prices:Pricer", 1, 30, OTHER_JOB)
        self.replica.stack = msgspec.structs.replace(
            SLEEPS, tid=99, switches=7, users_code=True, rests=True
        )
        self.replica.wakes = True
        self.maker = driver(OTHER_JOB, 2)
        self.maker.stack = ray_story.RESTS
        drivers = (self.main, self.maker) if lives else (self.main,)
        self.story = RayStory([*drivers, self.replica])
        self.story.drives(*drivers)
        self._finished = 'server_requests_finished_total{job="serve-prices-Pricer"}'
        self.story.gauges = {
            'server_requests{job="serve-prices-Pricer",state="running"}': 1.0,
            'server_request_longest_seconds{job="serve-prices-Pricer"}': 0.5,
            self._finished: 0.0,
        }

    def goes_on(self, seconds: int) -> RayStory:
        """It answers twice a second."""
        self.story.run(seconds, self._answers)
        return self.story

    def _answers(self) -> None:
        self.story.gauges[self._finished] += 2.0
        for one in self.story.processes:
            one.works(self.story.now)

    def hangs(self, seconds: int) -> RayStory:
        """It answers no more."""
        self.replica.wakes = False
        self.story.run(seconds, lambda: self.main.works(self.story.now))
        return self.story


@pytest.mark.parametrize("lives", [False, True], ids=["ended", "lives"])
def test_a_replica_of_ray_serve_is_named_in_the_job_that_waits_for_it(lives: bool) -> None:
    pricer = Pricer(lives=lives)
    hung_at = pricer.goes_on(60).now
    story = pricer.hangs(40)
    (culprit,) = story.culprits()
    assert (story.incident().job, story.incident().kind) == ("train_rl-2", "actor-stuck")
    assert culprit.role == "ServeReplica:prices:Pricer"
    confirmed = story.incident().confirmed_at
    assert confirmed is not None
    assert confirmed - hung_at <= 25.0


def test_a_replica_that_answers_is_not_named() -> None:
    assert Pricer().goes_on(120).engine.incidents(everything=True) == ()

"""Actors that are called by another job than that which has made them, or live on without a
driver."""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest

from ray_sentinel.engine.events import RayDeathsTold
from ray_sentinel.model.ray_calls import EndedCalls
from ray_sentinel.model.ray_deaths import DeathCause, RayDeath
from tests.support import ray_story
from tests.support.ray_story import (
    COMPUTES,
    GETS,
    OTHER_JOB,
    SLEEPS,
    RayStory,
    StoryProcess,
    actors,
    driver,
)


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
    driver of this job waits for its answers, or clients outside do. Serve's own metrics tell of its
    requests."""

    def __init__(self, *, lives: bool = False, outside: bool = False) -> None:
        self.main = driver()
        (self.replica,) = actors("ServeReplica:prices:Pricer", 1, 30, OTHER_JOB)
        self.replica.stack = msgspec.structs.replace(
            SLEEPS, tid=99, switches=7, users_code=True, rests=True
        )
        self.replica.wakes = True
        self.maker = driver(OTHER_JOB, 2)
        self.maker.stack = ray_story.RESTS
        (self.controller,) = actors("ServeController", 1, 40, OTHER_JOB)
        self.controller.begins("listen_for_change", ray_story.START, ray_story.RESTS)
        drivers = (self.main, self.maker) if lives else () if outside else (self.main,)
        self.story = RayStory([*drivers, self.controller, self.replica])
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


@pytest.mark.parametrize("outside", [False, True])
def test_a_replica_that_answers_is_not_named(outside: bool) -> None:
    assert Pricer(outside=outside).goes_on(120).engine.incidents(everything=True) == ()


def test_a_replica_is_named_for_whose_answer_only_clients_outside_wait() -> None:
    pricer = Pricer(outside=True)
    hung_at = pricer.goes_on(60).now
    story = pricer.hangs(60)
    (culprit,) = story.culprits()
    assert (story.incident().job, story.incident().kind) == ("train_rl-3", "actor-stuck")
    assert culprit.role == "ServeReplica:prices:Pricer"
    confirmed = story.incident().confirmed_at
    assert confirmed is not None
    assert confirmed - hung_at <= 40.0


class Service:
    """A gateway calls a scorer every other second. The driver that has made them ends after
    a while, or had ended before anybody looked."""

    def __init__(self, *, lives: bool) -> None:
        self.main = driver()
        self.gateway, self.scorer = (*actors("Gateway", 1, 10), *actors("Scorer", 1, 20))
        self.main.stack = ray_story.RESTS
        processes = [self.gateway, self.scorer]
        self.story = RayStory([self.main, *processes] if lives else processes)

    def driver_ends(self) -> None:
        """From now on the actors go on without it."""
        self.story.processes.remove(self.main)
        self.story.tell_table()

    def goes_on(self, seconds: int) -> RayStory:
        """It serves."""

        def second() -> None:
            self._rest()
            if self.story.now % 2 < 1:
                self.gateway.begins("ask", self.story.now, GETS)
                self.scorer.begins("score", self.story.now, COMPUTES)
                self.story.call(self.gateway, self.scorer, "score")

        self.story.run(seconds, second)
        return self.story

    def rests(self, seconds: int) -> RayStory:
        """Nobody asks for anything."""
        self._rest()
        self.story.run(seconds)
        return self.story

    def _rest(self) -> None:
        for one in (self.gateway, self.scorer):
            one.rests(self.story.now)
        self.story.calls.clear()

    def hangs(self, seconds: int) -> RayStory:
        """The scorer stands still in its next call."""
        self.goes_on(2)
        assert self.scorer.title == "Scorer.score"
        self.scorer.stack = SLEEPS
        self.story.run(seconds)
        return self.story


@pytest.mark.parametrize("lives", [True, False], ids=["ends-meanwhile", "had-ended"])
def test_actors_that_go_on_without_a_driver_are_a_job(lives: bool) -> None:
    service = Service(lives=lives)
    service.goes_on(60)
    if lives:
        service.driver_ends()
        service.goes_on(60)
    (job,) = service.story.engine.status(service.story.now).jobs
    assert [one.label for one in job.members] == ["Gateway 0", "Scorer 0"]
    story = service.hangs(60)
    (culprit,) = story.culprits()
    assert (story.incident().job, culprit.actor) == ("train_rl-2", "Scorer 0")


def test_actors_that_only_live_on_are_no_job() -> None:
    """Such as the one that keeps the statistics of Ray Data."""
    service = Service(lives=True)
    service.goes_on(60)
    service.rests(5)
    service.driver_ends()
    story = service.rests(300)
    assert story.engine.status(story.now).jobs == ()
    assert story.engine.incidents(everything=True) == ()


def test_the_last_calls_of_a_driver_are_no_job_of_their_own() -> None:
    service = Service(lives=True)
    service.goes_on(60)
    service.driver_ends()
    service.goes_on(8)
    story = service.rests(60)
    assert story.engine.status(story.now).jobs == ()


def death(what: Literal["actor", "driver"], cause: DeathCause, at: float, pid: int) -> RayDeath:
    return RayDeath(
        what=what,
        id=f"{what}-{pid}",
        job=ray_story.JOB,
        label="driver" if what == "driver" else "Scorer 0",
        role="driver" if what == "driver" else "Scorer",
        at=at,
        node=ray_story.NODE.id,
        pid=pid,
        cause=cause,
        witness="ray",
    )


@pytest.mark.parametrize("ended", ["finished", "stopped", "exception"])
def test_who_dies_after_the_drivers_end_has_a_cause_of_its_own(ended: DeathCause) -> None:
    service = Service(lives=True)
    story = service.goes_on(60)
    service.driver_ends()
    story.feed(RayDeathsTold(time=story.now, deaths=(death("driver", ended, story.now, 1),)))
    service.goes_on(60)
    killed = death("actor", "signal", story.now, service.scorer.pid)
    story.feed(RayDeathsTold(time=story.now, deaths=(killed,)))
    story.processes.remove(service.scorer)
    story.tell_table()
    story.run(20)
    (incident,) = [one for one in story.engine.incidents() if one.resolved_at is None]
    assert incident.verdict is not None
    (culprit,) = incident.verdict.culprits
    assert (incident.kind, culprit.actor) == ("actor-dead", "Scorer 0")


def test_tasks_of_a_job_beside_a_service_are_its_own() -> None:
    """Nobody tells of which job a worker is that runs a task."""
    service = Service(lives=False)
    main, worker = driver(OTHER_JOB, 3), StoryProcess(90, job=OTHER_JOB)
    service.story.processes += [main, worker]
    service.story.drives(main)
    service.story.tell_table()
    service.goes_on(30)
    ours = service.story.engine.view.ray.jobs[OTHER_JOB]
    before = ours.changed_at
    worker.title, worker.since = "preprocess", service.story.now
    service.goes_on(3)
    assert ours.changed_at > before

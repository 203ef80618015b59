"""Calls that wait in a queue or at a lock of an actor: who has ended such waits is named."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import pytest

from ray_sentinel.model.ray_calls import CallWaker, EndedCalls, FailedCall
from tests.support import ray_story
from tests.support.ray_story import (
    COMPUTES,
    GETS,
    SLEEPS,
    RayStory,
    StoryProcess,
    actors,
    driver,
)

WARM = 60
AWAITS = msgspec.structs.replace(ray_story.RESTS, tid=99, switches=7, rests=True)
"""The event loop of an actor has nothing to do."""


@dataclass
class Pipeline:
    """The driver waits for producers and a consumer, which waits in a queue's ``get``."""

    producers: int = 1
    known: bool = True
    """Whether the calls before have told who fills the queue."""
    main: StoryProcess = field(default_factory=driver)
    others: list[StoryProcess] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.queue,) = actors("Queue", 1, 10)
        (self.consumer,) = actors("Consumer", 1, 20)
        self.making = actors("Producer", self.producers, 30)
        self.queue.stack = AWAITS
        self.consumer.begins("run", ray_story.START, GETS)
        self.resting: list[StoryProcess] = []
        self.hung = False
        for one in self.making:
            one.stack = AWAITS
        self.story = RayStory([self.main, self.queue, self.consumer, *self.making, *self.others])
        self.story.run(WARM, lambda: self.second(hangs=False))

    def second(self, *, hangs: bool) -> None:
        """One second, in which the queue's waits end unless it ``hangs``."""
        story = self.story
        if hangs and self.hung:
            return
        story.drives(self.main)
        ago = story.now - ray_story.START
        for one in self.making:
            if one not in self.resting:
                story.call(self.main, one, "run", ago=ago)
        story.call(self.main, self.consumer, "run", ago=ago)
        story.call(self.consumer, self.queue, "get")
        self.hung = hangs
        if not hangs:
            self.queue.works(story.now)
            count, at = int(story.now - ray_story.START), story.now - 0.5
            story.ended = {
                name: EndedCalls(count=count, longest=0.8, last_at=at)
                for name in ("Queue.get", "Queue.put")
            }
            story.changes = (int(story.now),)
        story.wakers = tuple(self.waker(one) for one in self.making) if self.known else ()

    def waker(self, one: StoryProcess, *, owes: bool = False) -> CallWaker:
        return CallWaker(
            actor=self.queue.actor,
            waits="Queue.get",
            wakes="Queue.put",
            caller=one.actor,
            owes=owes,
        )

    def hangs(self, seconds: int = 180) -> RayStory:
        """Nothing is put any more."""
        self.story.run(seconds, lambda: self.second(hangs=True))
        return self.story


def test_a_producer_whose_coroutine_awaits_for_ever() -> None:
    pipeline = Pipeline()
    story = pipeline.hangs()
    assert [(one.actor, one.method) for one in story.culprits()] == [("Producer 0", "Producer.run")]
    incident = story.incident()
    assert incident.kind == "actor-stuck"
    assert incident.confirmed_at is not None
    assert incident.confirmed_at - (ray_story.START + WARM) < 30.0


def test_a_producer_that_has_ended() -> None:
    pipeline = Pipeline()
    pipeline.resting = pipeline.making
    pipeline.making[0].stack = ray_story.RESTS
    failed = FailedCall(
        name="Producer.run", actor="Producer 0", at=pipeline.story.now, error="KeyError: 'x'"
    )
    pipeline.story.failed = (failed,)
    story = pipeline.hangs()
    assert [one.actor for one in story.culprits()] == ["Producer 0"]
    summary = story.incident().summary
    assert summary.startswith("Producer 0 on host1 stands still: resting without another Queue.put")
    assert "Producer.run at Producer 0 failed" in summary
    assert story.chain() == [
        ("driver", "Consumer.run at Consumer 0", "ray.get"),
        ("Consumer.run at Consumer 0", "Queue.get at Queue 0", "ray.get"),
        ("Queue.get at Queue 0", "another Queue.put", "needs"),
        ("another Queue.put", "Producer 0", "may come from"),
    ]
    verdict = story.incident().verdict
    assert verdict is not None
    assert verdict.evidence[0].text.endswith(
        "needs another Queue.put → may come from Producer 0 → resting without another Queue.put"
    )


def test_without_calls_that_told_it_the_queue_is_named_where_all_wait_for_it() -> None:
    pipeline = Pipeline(known=False)
    pipeline.resting = pipeline.making
    assert [one.actor for one in pipeline.hangs().culprits()] == ["Queue 0"]


def test_what_a_producer_waits_for_is_named() -> None:
    (engine,) = actors("Engine", 1, 40)
    pipeline = Pipeline(others=[engine])
    engine.begins("generate", pipeline.story.now, SLEEPS)
    pipeline.making[0].stack = GETS

    def second() -> None:
        pipeline.second(hangs=True)
        story, (producer,) = pipeline.story, pipeline.making
        if not any(call.actor == engine.actor for call in story.calls):
            story.call(producer, engine, "generate")
        story.ended |= {"Engine.generate": EndedCalls(count=9, longest=1.0, last_at=0.0)}

    pipeline.story.run(120, second)
    assert [one.actor for one in pipeline.story.culprits()] == ["Engine 0"]
    verdict = pipeline.story.incident().verdict
    assert verdict is not None
    assert "4 processes wait" in verdict.summary, "the consumer, too"


def test_nobody_while_a_producer_works() -> None:
    pipeline = Pipeline()
    pipeline.making[0].begins("run", pipeline.story.now, COMPUTES)
    pipeline.making[0].goes_on = True

    def second() -> None:
        pipeline.second(hangs=True)
        pipeline.making[0].works(pipeline.story.now)

    pipeline.story.run(400, second)
    assert pipeline.story.engine.incidents() == ()


def test_one_of_two_producers_may_still_fill_the_queue() -> None:
    pipeline = Pipeline(producers=2)
    pipeline.making[1].begins("run", pipeline.story.now, COMPUTES)
    pipeline.making[1].goes_on = True
    assert pipeline.hangs(400).engine.incidents() == ()


@pytest.mark.parametrize("holder", [0, 1])
def test_who_holds_a_lock_is_named_of_all_who_have_released_it(holder: int) -> None:
    pipeline = Pipeline(producers=2)
    pipeline.resting = pipeline.making
    waker = pipeline.waker

    def owing(one: StoryProcess) -> CallWaker:
        return waker(one, owes=one is pipeline.making[holder])

    pipeline.waker = owing  # type: ignore[assignment]
    for one in pipeline.making:
        one.stack = ray_story.RESTS
    assert [one.actor for one in pipeline.hangs().culprits()] == [f"Producer {holder}"]


def test_who_holds_a_lock_and_waits_for_it_is_named() -> None:
    pipeline = Pipeline(producers=2)
    first, second = pipeline.making
    for one in (first, second):
        one.begins("run", pipeline.story.now, GETS)
    waker = pipeline.waker

    def owing(one: StoryProcess) -> CallWaker:
        return waker(one, owes=one is second)

    pipeline.waker = owing  # type: ignore[assignment]

    def each() -> None:
        begins = not pipeline.hung
        pipeline.second(hangs=True)
        for one in (first, second) if begins else ():
            pipeline.story.call(one, pipeline.queue, "get")

    pipeline.story.run(180, each)
    (culprit,) = pipeline.story.culprits()
    assert (culprit.actor, culprit.reason) == ("Producer 1", "waiting without another Queue.put")
    incident = pipeline.story.incident()
    assert "4 processes wait" in incident.summary
    assert incident.confirmed_at is not None
    assert incident.confirmed_at - (ray_story.START + WARM) < 32.0


def test_a_call_that_runs_is_not_waited_for() -> None:
    """Calls that begin and end together seem to end each other. Here each then waits for a lock
    that the other holds."""
    main, (holder,), (worker,) = driver(), actors("Holder", 1, 10), actors("Worker", 1, 20)
    story = RayStory([main, holder, worker])
    story.train(WARM)
    worker.rests(story.now)
    story.drives(main)
    holder.begins("take", story.now, ray_story.RESTS)
    holder.stack = msgspec.structs.replace(
        SLEEPS,
        signature=("give (rl.py:9)",),
        activity="lock-wait",
        label="waiting for a lock",
        users_code=True,
        tid=99,
        switches=7,
    )
    names = ("Holder.take", "Holder.give")
    for name in names:
        story.call(main, holder, name.removeprefix("Holder."))
    story.ended = {name: EndedCalls(count=20, longest=0.8, last_at=story.now) for name in names}
    story.wakers = tuple(
        CallWaker(actor=holder.actor, waits=waits, wakes=wakes, caller=story.calls[0].id, owes=owes)
        for waits, wakes, owes in ((*names, False), (*names[::-1], True))
    )
    story.run(60)
    assert [one.actor for one in story.culprits()] == ["Holder 0"]
    assert story.incident().kind == "actor-stuck"


def test_an_actor_at_rest_that_somebody_else_calls_is_not_named() -> None:
    (controller,) = actors("Controller", 1, 40)
    pipeline = Pipeline(others=[controller])
    pipeline.resting = pipeline.making
    pipeline.making[0].stack = ray_story.RESTS
    controller.begins("run", pipeline.story.now, COMPUTES)
    controller.goes_on = True

    def second() -> None:
        pipeline.second(hangs=True)
        if not any(call.actor == controller.actor for call in pipeline.story.calls):
            pipeline.story.call(pipeline.main, controller, "run")
        controller.works(pipeline.story.now)

    pipeline.story.run(400, second)
    assert pipeline.story.engine.incidents() == ()

"""Calls that follow each other without a pause, so that no title ever changes."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ray_sentinel.model.ray_calls import EndedCalls
from ray_sentinel.model.stacks import StackFact
from tests.support import ray_story
from tests.support.ray_stories.jobs import WARM, rollouts
from tests.support.ray_story import (
    COMPUTES,
    GETS,
    ITEMS,
    SELECTS,
    SLEEPS,
    SYNCHRONIZES,
    RayStory,
    actors,
    driver,
)


def asynchronous() -> RayStory:
    """Calls follow one another without a pause, so that no title ever changes."""
    story, main, workers = rollouts(4)
    main.stack = SELECTS
    for worker in workers:
        worker.begins("generate", story.now, COMPUTES)
        worker.goes_on = True

    def next_calls() -> None:
        story.drives(main)
        for one in story.processes:
            one.works(story.now)
        for worker in workers:
            story.call(main, worker, "generate")

    story.run(200, next_calls)
    return story


def one_of_many(stack: StackFact = SLEEPS) -> RayStory:
    story = asynchronous()
    first = story.processes[1]
    first.stack, first.goes_on = stack, False
    moving = list(story.processes)
    if stack is COMPUTES:
        first.busy_since = story.now
        story.ended = {"Rollout.generate": EndedCalls(count=200, longest=1.0)}
    else:
        moving.remove(first)

    def go_on() -> None:
        for one in moving:
            one.works(story.now)

    story.run(60, go_on)
    return story


class BackToBack:
    """A driver makes one call after the other, each of 0.4 s, to actors that ask their devices over
    and over in them: no title ever changes, and nobody rests. Ray's store knows what the workers
    reported a second ago."""

    def __init__(self, stack: StackFact, count: int = 1) -> None:
        self.main, self.workers = driver(), actors("Rollout", count, 10)
        self.story = RayStory([self.main, *self.workers])
        self.ended = 0
        for worker in self.workers:
            worker.spins("generate", self.story.now, stack)

    def goes_on(self, seconds: int) -> None:
        """Calls follow each other."""
        self.story.run(seconds, self._second)

    def hangs(self, seconds: int, *, listed: bool = True, each: Callable[[], object]) -> None:
        """The calls that begin now do not end; ``listed``: Ray's store knows of them."""
        self.story.drives(self.main)
        for worker in self.workers if listed else ():
            self.story.call(self.main, worker, "generate")

        def second() -> None:
            self._work()
            each()

        self.story.run(seconds, second)

    def _second(self) -> None:
        self._work()
        story, self.ended = self.story, self.ended + 2
        story.ended = {
            "Rollout.generate": EndedCalls(count=self.ended, longest=0.8, last_at=story.now - 0.9)
        }
        story.drives(self.main)
        # The store is asked between two calls, before one has begun, or while one runs.
        state = (None, "queued", "running")[int(story.now) // 7 % 3]
        for worker in self.workers if state else ():
            story.call(self.main, worker, "generate", "queued" if state == "queued" else "running")
            began = story.now - 0.9
            story.calls[-1] = msgspec.structs.replace(story.calls[-1], since=began, made=began)

    def _work(self) -> None:
        for one in self.story.processes:
            one.works(self.story.now)


def back_to_back(stack: StackFact = ITEMS) -> RayStory:
    play = BackToBack(stack)
    play.goes_on(600)
    return play.story


def now_and_then_a_long_one(stack: StackFact = ITEMS) -> RayStory:
    """Of the calls that follow each other, some take as long as two looks."""
    play = BackToBack(stack)
    for _ in range(6):
        play.goes_on(80)
        play.hangs(13, each=lambda: None)
    play.goes_on(80)
    return play.story


def after_calls(
    stack: StackFact,
    seconds: int = 60,
    *,
    count: int = 1,
    listed: bool = True,
    each: Callable[[BackToBack], object] = lambda _: None,
) -> RayStory:
    """After a minute of such calls, one stands at ``stack`` and does not end."""
    play = BackToBack(ITEMS, count)
    play.goes_on(WARM)
    for worker in play.workers:
        worker.stack = stack
    play.hangs(seconds, listed=listed, each=lambda: each(play))
    return play.story


def device_hangs() -> RayStory:
    """What it has launched on its device does not end."""
    return after_calls(SYNCHRONIZES)


def compiled_graph(
    *, stands_for: int = 8, seconds: int = 240, driver_stands: bool = False
) -> RayStory:
    """A stage of a compiled graph stands still for so many of each ten seconds, in the one call in
    which it runs the graph; or the driver does between two runs of the graph. Ray has told how long
    the calls took that have compiled it."""
    main, (first, second) = driver(), actors("Stage", 2, 10)
    story = RayStory([main, first, second])
    story.train(WARM, method="__ray_call__")
    story.ended = {"Stage.__ray_call__": EndedCalls(count=30, longest=1.0)}
    story.drives(main)
    for one in (first, second):
        one.begins("__ray_call__", story.now, ray_story.RESTS)
        story.call(main, one, "__ray_call__")
        story.run(1)
    at = 0

    def each() -> None:
        nonlocal at
        goes_on = int(story.now) % 10 >= stands_for
        at += int(goes_on)
        first.stack = msgspec.structs.replace(SLEEPS, tid=99, switches=at)
        if driver_stands:
            first.stack = msgspec.structs.replace(GETS, tid=99)
            main.stack = SLEEPS
        if goes_on:
            main.works(story.now)
        second.stack = msgspec.structs.replace(GETS, tid=98)

    story.run(seconds, each)
    return story

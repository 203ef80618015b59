"""A sleep whose end the kernel tells: a pause between two rounds is no process that is stuck."""

from __future__ import annotations

import msgspec
import pytest

from tests.support import ray_story
from tests.support.ray_story import GETS, SLEEPS, RayStory, StoryProcess, actors, driver

WARM = 60


def job() -> tuple[RayStory, StoryProcess, StoryProcess]:
    """A job that has trained for a minute, its driver, and its only actor."""
    main, (rollout,) = driver(), actors("Rollout", 1, 10)
    story = RayStory([main, rollout])
    story.train(WARM)
    rollout.rests(story.now)
    story.drives(main)
    return story, main, rollout


def driver_sleeps(story: RayStory, main: StoryProcess, seconds: float) -> None:
    main.stack = msgspec.structs.replace(
        SLEEPS, signature=("main (train_rl.py:40)",), wakes_at=story.now + seconds
    )


def told_after(story: RayStory) -> float:
    confirmed = story.incident().confirmed_at
    assert confirmed is not None
    return confirmed - (ray_story.START + WARM)


@pytest.mark.parametrize("pause", [20, 100])
def test_a_driver_pauses_between_two_rounds(pause: int) -> None:
    story, main, _ = job()
    driver_sleeps(story, main, pause)
    story.run(pause)
    main.stack = GETS
    main.works(story.now)
    story.train(60)
    assert story.engine.incidents() == ()


def test_a_driver_sleeps_for_an_hour() -> None:
    story, main, _ = job()
    driver_sleeps(story, main, 3600)
    story.run(40)
    assert story.incident().kind == "driver-stuck"
    assert 15.0 < told_after(story) <= 22.0


@pytest.mark.parametrize(("seconds", "paused"), [(25, True), (100, True), (3600, False)])
def test_the_event_loop_of_a_driver_has_nothing_to_do_for_a_while(
    seconds: int, *, paused: bool
) -> None:
    """The kernel tells how long it waits, and not since when."""
    story, main, _ = job()

    def look() -> None:
        main.stack = msgspec.structs.replace(
            ray_story.RESTS, users_code=True, tid=1, switches=7, wakes_at=story.now + seconds
        )

    story.run(min(seconds, 40 if not paused else seconds), look)
    if paused:
        main.stack = GETS
        main.works(story.now)
        story.train(60)
        assert story.engine.incidents() == ()
    else:
        assert story.incident().kind == "driver-stuck"
        assert 15.0 < told_after(story) <= 22.0


def test_the_event_loop_of_a_driver_has_nothing_to_do_ever() -> None:
    story, main, _ = job()
    main.stack = msgspec.structs.replace(ray_story.RESTS, users_code=True, tid=1, switches=7)
    story.run(40)
    assert story.incident().kind == "driver-stuck"
    assert 15.0 < told_after(story) <= 22.0


def test_a_driver_sleeps_again_and_again() -> None:
    """As one does that polls for what never comes."""
    story, main, _ = job()

    def poll() -> None:
        if int(story.now - ray_story.START - WARM) % 50 == 1:
            driver_sleeps(story, main, 49)
            main.works(story.now)

    story.run(200, poll)
    assert story.incident().kind == "driver-stuck"
    assert 100.0 < told_after(story) <= 150.0


@pytest.mark.parametrize("seconds", [30, 3600])
def test_who_waits_for_an_actor_that_sleeps_in_a_call_is_told(seconds: int) -> None:
    story, main, rollout = job()
    stack = msgspec.structs.replace(SLEEPS, wakes_at=story.now + seconds)
    rollout.begins("generate", story.now, stack)
    story.call(main, rollout, "generate")
    story.run(30)
    assert [one.state for one in story.engine.incidents()] == ["explained"]

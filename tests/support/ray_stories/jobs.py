"""Jobs of Ray that have trained for a minute, with which stories begin."""

from __future__ import annotations

from tests.support.ray_story import (
    RayStory,
    StoryProcess,
    actors,
    driver,
)

WARM = 60
"""Seconds of healthy training before anything happens: fifteen calls of four seconds."""


def rollouts(count: int = 2) -> tuple[RayStory, StoryProcess, list[StoryProcess]]:
    """A driver and rollouts that have trained for a minute."""
    main, workers = driver(), actors("Rollout", count, 10)
    story = RayStory([main, *workers])
    story.train(WARM)
    for worker in workers:
        worker.rests(story.now)
    story.drives(main)
    return story, main, workers


def with_ranks(
    *, answers: bool = True
) -> tuple[RayStory, StoryProcess, StoryProcess, list[StoryProcess]]:
    """The same with one rollout, and two trainers that make a process group."""
    main, (rollout,) = driver(), actors("Rollout", 1, 10)
    trainers = actors("Trainer", 2, 50, ranks=True)
    story = RayStory([main, rollout, *trainers], answers=answers)
    story.train(WARM)
    for worker in (rollout, *trainers):
        worker.rests(story.now)
    story.drives(main)
    return story, main, rollout, trainers

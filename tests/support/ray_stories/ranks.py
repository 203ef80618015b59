"""Trainers that are ranks of a process group, in a job of Ray."""

from __future__ import annotations

from ray_sentinel.model.stacks import StackFact
from tests.support.ray_stories.jobs import with_ranks
from tests.support.ray_story import (
    GETS,
    MUTE,
    REDUCES,
    SLEEPS,
    RayStory,
)


def ranks_wait(stack: StackFact = SLEEPS) -> RayStory:
    """Both trainers wait for a rollout, of which ``stack`` is seen."""
    story, main, rollout, trainers = with_ranks()
    for trainer in trainers:
        trainer.begins("update", story.now, GETS)
        story.call(main, trainer, "update")
    rollout.begins("generate", story.now, stack)
    story.call(trainers[0], rollout, "generate")
    story.call(trainers[1], rollout, "generate", "queued")
    story.run(200)
    return story


def mute() -> RayStory:
    return ranks_wait(MUTE)


def rank_stuck() -> RayStory:
    story, main, _, trainers = with_ranks()
    for trainer, stack in zip(trainers, (REDUCES, SLEEPS), strict=True):
        trainer.begins("update", story.now, stack)
        story.call(main, trainer, "update")
    story.run(200)
    return story


def all_reduce() -> RayStory:
    story, main, _, trainers = with_ranks()
    for trainer in trainers:
        trainer.begins("update", story.now, REDUCES)
        story.call(main, trainer, "update")
    story.run(200)
    return story


def circle_with_a_rank() -> RayStory:
    """One trainer and the rollout wait for each other, and the other trainer in a collective."""
    story, main, rollout, (first, second) = with_ranks()
    first.begins("update", story.now, GETS)
    second.begins("update", story.now, REDUCES)
    rollout.begins("ask", story.now, GETS)
    for one, method in ((first, "update"), (second, "update"), (rollout, "ask")):
        story.call(main, one, method)
    story.call(first, rollout, "answer", "queued")
    story.call(rollout, first, "answer", "queued")
    story.run(120)
    return story

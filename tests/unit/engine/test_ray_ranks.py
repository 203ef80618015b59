"""Ranks of process groups that are actors of Ray: which job an incident is of, and who is named."""

from __future__ import annotations

import pytest

from tests.support import ray_story
from tests.support.ray_stories.jobs import WARM, with_ranks
from tests.support.ray_stories.ranks import (
    all_reduce,
    circle_with_a_rank,
    rank_stuck,
    ranks_wait,
)
from tests.support.ray_story import (
    REDUCES,
    SLEEPS,
    RayStory,
    actors,
    driver,
)


def test_one_in_a_circle_is_told_of_at_once() -> None:
    story = circle_with_a_rank()
    incident = story.incident()
    assert (incident.kind, incident.job) == ("call-deadlock", "train_rl-2")
    assert sorted(one.actor for one in story.culprits()) == ["Rollout 0", "Trainer 0"]
    assert incident.confirmed_at is not None
    assert incident.confirmed_at - ray_story.START - WARM < 25.0


def test_ranks_wait_for_a_rollout() -> None:
    story = ranks_wait()
    assert story.incident().kind == "actor-stuck", "and their own job has no incident"
    assert [one.actor for one in story.culprits()] == ["Rollout 0"]
    assert story.chain() == [
        ("driver", "Trainer.update at Trainer 0", "ray.get"),
        ("Trainer.update at Trainer 0", "Rollout.generate at Rollout 0", "ray.get"),
    ]


def test_a_stuck_one_is_told_of_by_its_own_case() -> None:
    story = rank_stuck()
    incident, (culprit,) = story.incident(), story.culprits()
    assert (incident.job, incident.kind) == ("train_rl-2.Trainer", "host-stuck")
    assert (culprit.rank, culprit.role, culprit.actor) == (1, "Trainer", "Trainer 1")
    assert culprit.method == "Trainer.update"
    assert story.chain() == [("driver", "Trainer.update at Trainer 1", "ray.get")]


def test_one_that_was_hardly_seen_to_work_is_told_of_once() -> None:
    """Their calls show that they train before their own job does: they poll their devices."""
    main, rollout = driver(), actors("Rollout", 1, 10)
    trainers = actors("Trainer", 2, 50, ranks=True)
    story = RayStory([main, *rollout, *trainers])

    def poll() -> None:
        story.iterate()
        for one in trainers:
            one.worked += one.title == "Trainer.update"

    story.run(WARM - 4, poll)
    story.train(4)
    rollout[0].rests(story.now)
    story.drives(main)
    for trainer, stack in zip(trainers, (REDUCES, SLEEPS), strict=True):
        trainer.begins("update", story.now, stack)
        story.call(main, trainer, "update")
    story.run(300)
    assert [(one.pid, one.rank, one.actor) for one in story.culprits()] == [(51, 1, "Trainer 1")]


def test_all_in_one_collective() -> None:
    story = all_reduce()
    incident = story.incident()
    assert (incident.job, incident.kind) == ("train_rl-2.Trainer", "unknown")
    assert story.culprits() == ()


@pytest.mark.parametrize("stack", [REDUCES, SLEEPS], ids=["reduces", "sleeps"])
def test_ranks_are_judged_without_a_look(stack: object) -> None:
    story, main, _, trainers = with_ranks(answers=False)
    for trainer in trainers:
        trainer.begins("update", story.now, REDUCES)
        story.call(main, trainer, "update")
    trainers[1].stack = stack  # type: ignore[assignment]
    story.run(200)
    assert story.looks == 0
    assert story.incident().job == "train_rl-2.Trainer"
    assert [one.rank for one in story.culprits()] == ([1] if stack is SLEEPS else [])

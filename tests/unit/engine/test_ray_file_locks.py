"""Jobs of actors whose processes wait for locks on files that others of them hold."""

from __future__ import annotations

import msgspec

from ray_sentinel.model.connections import AwaitedAnswer
from tests.support import ray_story
from tests.support.ray_story import (
    COMPUTES,
    RESTS,
    SLEEPS,
    RayStory,
    StoryProcess,
    actors,
    driver,
)

FILE = "/data/cache.lock"
AT_LOCK = msgspec.structs.replace(
    SLEEPS, signature=("generate (rollout.py:7)",), activity="lock-wait", label="waiting for a lock"
)
WARM = 60


def locked(*waiters: int, holder: int = 0) -> tuple[RayStory, list[StoryProcess]]:
    """All rollouts were called at once; some wait for a lock that one of them holds, which stands
    elsewhere."""
    main, rollouts = driver(), actors("Rollout", 3, 10)
    story = RayStory([main, *rollouts])
    story.run(WARM, story.iterate)
    story.drives(main)
    for one in rollouts:
        one.rests(story.now)
    for number in waiters:
        rollouts[number].begins("generate", story.now, AT_LOCK)
        story.call(main, rollouts[number], "generate")
        story.asked.append(waits(rollouts[number], rollouts[holder], story.now))
    return story, rollouts


def waits(who: StoryProcess, holder: StoryProcess, at: float) -> AwaitedAnswer:
    return AwaitedAnswer(
        who=who.id, whom=holder.id, asker=who.id, answerer=holder.id, since=at, lock=FILE
    )


def works(story: RayStory, one: StoryProcess) -> None:
    main = story.processes[0]
    one.begins("generate", story.now, SLEEPS)
    story.call(main, one, "generate")


def test_who_holds_the_lock_is_named_and_not_who_waits_for_it() -> None:
    story, rollouts = locked(1, 2)
    works(story, rollouts[0])
    story.run(60)
    (culprit,) = story.culprits()
    assert (culprit.actor, culprit.reason) == ("Rollout 0", "sleeping in score (reward.py:88)")
    roots = story.engine.view.ray.jobs[ray_story.JOB].roots
    assert roots[0].root.waiters == 3, "the driver and both others"


def test_the_chain_names_the_file() -> None:
    story, rollouts = locked(1, 2)
    rollouts[0].stack = msgspec.structs.replace(SLEEPS, tid=99, switches=7)
    story.run(100)
    (culprit,) = story.culprits()
    assert culprit.actor == "Rollout 0"
    assert story.chain()[1:] == [
        ("Rollout.generate at Rollout 1", f"the lock on {FILE}", "a lock on a file"),
        (f"the lock on {FILE}", "Rollout 0", "is held by"),
    ]
    (seen,) = story.engine.view.ray.jobs[ray_story.JOB].roots
    assert f"s for the lock on {FILE} → is held by Rollout 0 → sleep" in seen.root.sentence


def test_who_has_ended_its_call_and_kept_the_lock_is_named() -> None:
    story, _ = locked(1, 2)
    story.run(200)
    (culprit,) = story.culprits()
    assert culprit.actor == "Rollout 0"
    assert "without releasing" in culprit.reason


def test_a_holder_that_works_holds_nobody_up_however_long() -> None:
    story, rollouts = locked(1, 2)
    works(story, rollouts[0])
    rollouts[0].stack, rollouts[0].goes_on = COMPUTES, True
    story.run(600, lambda: rollouts[0].works(story.now))
    assert story.engine.incidents(everything=True) == ()


def test_a_lock_in_passing_is_no_wait() -> None:
    """It has got the lock since, and another stands still."""
    story, rollouts = locked(1, holder=2)
    rollouts[1].stack = msgspec.structs.replace(SLEEPS, signature=("generate (rollout.py:9)",))
    rollouts[2].stack = RESTS
    story.run(60)
    (culprit,) = story.culprits()
    assert culprit.actor == "Rollout 1"

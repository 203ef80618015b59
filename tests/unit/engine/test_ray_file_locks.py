"""Jobs of actors whose processes wait for locks on files that others of them hold."""

from __future__ import annotations

from tests.support import ray_story
from tests.support.ray_stories.file_locks import (
    LOCKED_FILE,
    lock_holder_stands,
    lock_holder_works,
    lock_in_passing,
    lock_kept,
    lock_of_a_stranger,
)


def test_who_holds_the_lock_is_named_and_not_who_waits_for_it() -> None:
    story = lock_holder_stands()
    (culprit,) = story.culprits()
    assert (culprit.actor, culprit.reason) == ("Rollout 0", "sleeping in score (reward.py:88)")
    (seen,) = story.engine.view.ray.jobs[ray_story.JOB].roots
    assert seen.root.waiters == 3, "the driver and both others"


def test_the_chain_names_the_file() -> None:
    story = lock_holder_stands(in_call=False)
    (culprit,) = story.culprits()
    assert culprit.actor == "Rollout 0"
    assert story.chain()[1:] == [
        ("Rollout.generate at Rollout 1", f"the lock on {LOCKED_FILE}", "a lock on a file"),
        (f"the lock on {LOCKED_FILE}", "Rollout 0", "is held by"),
    ]
    (seen,) = story.engine.view.ray.jobs[ray_story.JOB].roots
    told = f"s for the lock on {LOCKED_FILE} → is held by Rollout 0 → sleeping in score"
    assert told in seen.root.sentence


def test_who_has_ended_its_call_and_kept_the_lock_is_named() -> None:
    (culprit,) = lock_kept().culprits()
    assert culprit.actor == "Rollout 0"
    assert culprit.reason == "resting without releasing it"


def test_a_holder_that_works_holds_nobody_up_however_long() -> None:
    story = lock_holder_works()
    assert story.engine.incidents(everything=True) == ()
    (seen,) = story.engine.view.ray.jobs[ray_story.JOB].roots
    assert (seen.root.kind, seen.root.who) == ("works", ("Rollout 0",))


def test_of_a_lock_that_a_stranger_holds_the_waiter_is_named_with_the_stranger() -> None:
    (culprit,) = lock_of_a_stranger().culprits()
    assert culprit.actor == "Rollout 1"
    assert culprit.reason == (
        f"waiting for the lock on {LOCKED_FILE} of downloader, pid 4711, in generate (rollout.py:7)"
    )


def test_a_lock_that_was_got_meanwhile_is_awaited_no_more() -> None:
    story = lock_in_passing()
    culprits = {culprit.actor for culprit in story.culprits()}
    assert culprits
    assert culprits <= {"Rollout 1", "Rollout 2"}


def test_a_lock_that_was_got_meanwhile_makes_no_work_of_who_held_it() -> None:
    """Rollout 0 has no call, and a thread of it stands in its own code."""
    story = lock_in_passing(holder_has_thread=True)
    assert "Rollout 0" not in {culprit.actor for culprit in story.culprits()}
    standing = story.engine.view.ray.jobs[ray_story.JOB].standing.values()
    assert {one.member.label for one in standing} == {"Rollout 1", "Rollout 2"}

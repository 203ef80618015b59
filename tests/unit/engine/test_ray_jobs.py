"""The engine's view of Ray jobs, between its tables and the snapshots of nodes."""

from __future__ import annotations

import msgspec
import pytest

from ray_sentinel.engine.events import EndedCallsTold
from ray_sentinel.engine.ray.job_view import STARTUP_TIMEOUT, TIMES_SELDOM
from ray_sentinel.engine.ray.methods import LEAST_TIMEOUT, RHYTHM
from ray_sentinel.model.ray_calls import EndedCalls, PendingGroup
from tests.support.ray_stories.jobs import rollouts
from tests.support.ray_story import (
    COMPUTES,
    JOB,
    RESTS,
    SLEEPS,
    RayStory,
    StoryProcess,
    actors,
    driver,
)


def test_a_new_table_forgets_nothing_of_who_runs_what() -> None:
    main, (first, second) = driver(), actors("Rollout", 2, 10)
    story = RayStory([main, first, second])
    story.train(40)
    second.rests(story.now)
    first.begins("generate", story.now, SLEEPS)
    story.run(60)
    jobs = story.engine.view.ray
    job = jobs.jobs[JOB]
    (late,) = jobs.overdue(job, story.now)
    group = PendingGroup(id="1", job=JOB)
    jobs.apply_table(msgspec.structs.replace(jobs.table, groups=(group,)), story.now)
    assert list(jobs.overdue(job, story.now)) == [late]


def test_that_actors_were_made_is_no_rhythm_of_their_job() -> None:
    story = RayStory([driver(), *actors("Rollout", 2, 10)])
    story.run(2)
    job = story.engine.view.ray.jobs[JOB]
    job.method("Rollout.__init__").ended = RHYTHM
    assert not job.has_rhythm
    job.method("Rollout.generate").ended = RHYTHM
    assert job.has_rhythm


def test_a_constructor_is_known_once_a_fellow_of_another_name_has_come_through_it() -> None:
    story = RayStory([driver(), *actors("Rollout", 2, 10)])
    story.run(2)
    job = story.engine.view.ray.jobs[JOB]
    assert job.timeout_in("right:Rollout.__init__") == STARTUP_TIMEOUT
    job.method("left:Rollout.__init__").ended = 1
    assert job.timeout_in("right:Rollout.__init__") == LEAST_TIMEOUT


def test_calls_that_follow_each_other_under_one_title_make_no_pause() -> None:
    main, workers = driver(), actors("Rollout", 2, 10)
    story = RayStory([main, *workers])
    story.train(40)
    for one in workers:
        one.begins("generate", story.now, COMPUTES)

    def one_after_another() -> None:
        count = int(story.now)
        story.ended = {"Rollout.generate": EndedCalls(count=count, longest=0.5, last_at=story.now)}
        for one in workers:
            one.works(story.now)

    story.run(60, one_after_another)
    story.train(8)
    assert max(story.engine.view.ray.jobs[JOB].pauses.recent) < LEAST_TIMEOUT
    assert story.engine.incidents(everything=True) == ()


def three_rounds(story: RayStory, workers: list[StoryProcess]) -> list[int]:
    """Titles show three calls of ten seconds; returns when they began."""
    begins = []
    for _ in range(3):
        begins.append(int(story.now))
        for one in workers:
            one.begins("generate", story.now, COMPUTES)
        story.run(10)
        for one in workers:
            one.rests(story.now)
        story.run(2)
    return begins


@pytest.mark.parametrize("one_after_another", [True, False])
def test_a_title_that_stood_for_several_calls_makes_no_long_pause(one_after_another: bool) -> None:
    main, workers = driver(), actors("Rollout", 2, 10)
    story = RayStory([main, *workers])
    story.train(40)
    begins = three_rounds(story, workers)
    job = story.engine.view.ray.jobs[JOB]
    assert job.timeout > 25.0
    # Ray tells of calls within these seconds, or of one call in each of them.
    each = range(0, 11, 2) if one_after_another else (0, 10)
    story.changes = tuple(begin + second for begin in begins for second in each)
    story.ended = {"Rollout.generate": EndedCalls(count=40, longest=0.5, last_at=story.now)}
    story.run(40)
    assert (job.timeout == LEAST_TIMEOUT) == one_after_another


def times_told(story: RayStory) -> list[EndedCallsTold]:
    """Ray's answers about how long ended calls took."""
    told = [event for event in story.log if isinstance(event, EndedCallsTold)]
    return [event for event in told if event.running is None]


def test_pauses_are_known_for_several_calls_before_silence_counts() -> None:
    main, workers = driver(), actors("Rollout", 2, 10)
    story = RayStory([main, *workers])
    story.train(40)
    begins = three_rounds(story, workers)
    each = range(0, 11, 2)
    story.changes = tuple(begin + second for begin in begins for second in each)
    story.ended = {"Rollout.generate": EndedCalls(count=40, longest=0.5, last_at=story.now)}
    looks = story.looks
    story.run(8)
    assert story.engine.view.ray.jobs[JOB].timeout == LEAST_TIMEOUT
    assert story.looks == looks


def test_the_times_of_ended_calls_are_asked_for_seldom_where_they_tell_nothing_new() -> None:
    main, workers = driver(), actors("Rollout", 2, 10)
    story = RayStory([main, *workers])
    story.train(40)
    for _ in range(20):
        three_rounds(story, workers)
    asked = times_told(story)
    assert 1 <= len(asked) <= 12 * 3 * 20 / TIMES_SELDOM + 4
    assert story.engine.incidents(everything=True) == ()


def test_the_rhythm_of_tasks_is_known_before_silence_counts() -> None:
    """No title tells one task's end from that of the next."""
    main, workers = driver(), actors("Worker", 2, 10)
    story = RayStory([main, *workers])

    def turns() -> None:
        for one in workers:
            one.title = "preprocess" if int(story.now) % 3 else "IDLE"
            one.since = story.now - 0.5
            one.works(story.now)

    story.run(20, turns)
    story.ended = {"preprocess": EndedCalls(count=12, longest=2.0, last_at=story.now)}
    job = story.engine.view.ray.jobs[JOB]
    assert not job.has_rhythm
    looks = story.looks
    story.run(9)
    assert job.has_rhythm
    assert story.looks == looks


def test_no_times_are_asked_for_where_no_pause_was_long() -> None:
    story, _, _ = rollouts()
    story.run(60)
    assert not times_told(story)


@pytest.mark.parametrize(
    ("runs_a_program", "helper", "stuck"),
    [
        (False, "", False),
        (True, "", True),
        (True, "tool", False),
        (True, "launcher or helper", True),
    ],
)
def test_a_driver_that_rests_waits_for_a_person_unless_a_program_of_its_user_runs(
    runs_a_program: bool, helper: str, stuck: bool
) -> None:
    """The kernel of a notebook may be started by a program of a platform, outside of libraries.
    What a command line says of other tools tells nothing."""
    story, main, _ = rollouts()
    main.stack = msgspec.structs.replace(RESTS, users_code=runs_a_program, helper=helper)
    story.run(300)
    kinds = [one.kind for one in story.engine.incidents(everything=True)]
    assert kinds == (["driver-stuck"] if stuck else [])


def test_what_a_job_waits_for_while_its_actors_are_made_is_no_pause_of_its_work() -> None:
    main, workers = driver(), actors("Rollout", 2, 10)
    story = RayStory([main, *workers])
    for one in workers:
        one.begins("__init__", story.now, SLEEPS)
    story.run(40)
    for one in workers:
        one.rests(story.now)
    story.train(40)
    assert story.engine.view.ray.jobs[JOB].timeout == LEAST_TIMEOUT

"""The engine's view of Ray jobs, between its tables and the snapshots of nodes."""

from __future__ import annotations

import msgspec

from ray_sentinel.engine.ray_jobs import RHYTHM
from ray_sentinel.model.ray_calls import PendingGroup
from tests.support.ray_story import JOB, SLEEPS, RayStory, actors, driver


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
    jobs.take_table(msgspec.structs.replace(jobs.table, groups=(group,)), story.now)
    assert list(jobs.overdue(job, story.now)) == [late]


def test_that_actors_were_made_is_no_rhythm_of_their_job() -> None:
    story = RayStory([driver(), *actors("Rollout", 2, 10)])
    story.run(2)
    job = story.engine.view.ray.jobs[JOB]
    job.method("Rollout.__init__").ended = RHYTHM
    assert not job.has_rhythm
    job.method("Rollout.generate").ended = RHYTHM
    assert job.has_rhythm

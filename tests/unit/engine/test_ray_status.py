"""Ray jobs in ``status``: their members, and what each does."""

from __future__ import annotations

from ray_sentinel.model.status import JobStatus, MemberStatus
from tests.support.ray_story import JOB, SLEEPS, RayStory, actors, driver


def job_of(story: RayStory) -> JobStatus:
    (job,) = story.engine.status(story.now).jobs
    return job


def members(story: RayStory) -> dict[str, MemberStatus]:
    return {one.label: one for one in job_of(story).members}


def test_each_member_with_its_method_and_what_is_usual() -> None:
    main, (first, second) = driver(), actors("Rollout", 2, 10)
    story = RayStory([main, first, second])
    story.train(59)  # all rest in its last second
    second.rests(story.now)
    first.begins("generate", story.now, SLEEPS)
    story.run(2)
    job, told = job_of(story), members(story)
    assert (job.job, job.ray_job, job.state, job.phase) == ("train_rl-2", JOB, "healthy", "train")
    assert list(told) == ["driver", "Rollout 0", "Rollout 1"]
    assert (told["driver"].role, told["driver"].pid, told["driver"].host) == ("driver", 1, "host1")
    busy, idle = told["Rollout 0"], told["Rollout 1"]
    assert (busy.role, busy.method, busy.seconds) == ("Rollout", "Rollout.generate", 2.0)
    assert busy.usual_seconds == 3.0
    assert (idle.method, idle.seconds, idle.state) == ("", None, "idle")
    assert busy.state == "running"
    story.run(3)
    assert members(story)["Rollout 0"].state == "silent"
    first.state = "T"
    story.run(1)
    assert members(story)["Rollout 0"].state == "stopped"


def test_ranks_are_no_members_twice() -> None:
    main, rollout = driver(), actors("Rollout", 1, 10)
    story = RayStory([main, *rollout, *actors("Trainer", 2, 50, ranks=True)])
    story.train(30)
    jobs = {one.job: one for one in story.engine.status(story.now).jobs}
    assert [one.label for one in jobs["train_rl-2"].members] == ["driver", "Rollout 0"]
    assert len(jobs["train_rl-2.Trainer"].ranks) == 2


def test_an_actor_that_is_not_placed_is_starting() -> None:
    main, (only,) = driver(), actors("Rollout", 1, 10)
    only.actor_state = "PENDING_CREATION"
    story = RayStory([main, only])
    story.run(5)
    assert members(story)["Rollout 0"].state == "starting"

"""RAS answers as facts: who is behind, who called something else, and whom both keep waiting."""

from __future__ import annotations

from ray_sentinel.model.ras import RasFacts
from ray_sentinel.waitgraph.ras import explain
from tests.support.ras_sim.job import Job
from tests.support.ras_sim.render import as_json


def polled(job: Job) -> RasFacts:
    return explain({"poll": as_json(job).encode()})


def job_of_eight() -> Job:
    job = Job(5, 2, 4)
    job.run(20)
    return job


def test_a_wrong_call_is_found_in_one_poll_though_another_rank_is_farther_behind() -> None:
    job = job_of_eight()
    job.world.launch("AllReduce", 9, but=(2, 3))
    job.world.launch("AllReduce", 5, but=(0, 1, 3, 4, 5, 6, 7))
    job.world.seat(2).counts["Broadcast"] += 1
    facts = polled(job)
    assert (facts.kind, [one.rank for one in facts.culprits]) == ("collective-mismatch", [2])


def test_ranks_that_agree_with_most_and_not_with_each_other_are_survived() -> None:
    job = job_of_eight()
    job.world.launch("AllReduce", 1, but=(2,))
    job.world.launch("AllGather", 1, but=(3,))
    assert not polled(job).culprits


def test_thousands_of_ranks_of_which_half_are_ahead_are_judged_at_once() -> None:
    job = Job(7, 512, 8)
    job.run(9)
    job.world.launch("AllReduce", 1, but=tuple(range(0, 4096, 2)))
    assert not polled(job).culprits

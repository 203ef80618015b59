"""The course of a submitted job, with a job API that a test moves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from ray_sentinel.clock import FakeClock
from ray_sentinel.errors import UnreachableError
from ray_sentinel.evidence.checkpoints import CheckpointFacts
from ray_sentinel.supervise.bad_nodes import BadNode
from ray_sentinel.supervise.job_supervisor import JobSupervisor
from ray_sentinel.supervise.parts import Sighting
from ray_sentinel.supervise.policy import Checkpoint, Failure, Policy
from ray_sentinel.supervise.ray_jobs import Job, checkpoint_at, shell_filled


class Api:
    """Each job's statuses, one a look; the last one stays."""

    def __init__(self, *jobs: list[str]) -> None:
        self.plans = {f"job-{number}": plan for number, plan in enumerate(jobs)}
        self.submitted: list[tuple[str, int]] = []
        self.stopped: list[str] = []
        self.without: list[tuple[str, ...]] = []
        self.silent = 0

    def job(self, job_id: str) -> Job:
        return Job(id=job_id, status="RUNNING", message="it broke", template="train {step}",
                   name="name", attempt=0, options={"metadata": {}})  # fmt: skip

    def status(self, job_id: str) -> str:
        if self.silent:
            self.silent -= 1
            raise UnreachableError("nobody answers")
        plan = self.plans[job_id]
        return plan.pop(0) if len(plan) > 1 else plan[0]

    def step(self, job_id: str) -> int | None:
        return None

    def output(self, job_id: str) -> str:
        return ""

    def stop(self, job_id: str) -> None:
        self.stopped.append(job_id)
        self.plans[job_id] = ["STOPPED"]

    def submit(
        self,
        config: Mapping[str, Any],
        checkpoint: Checkpoint | None,
        attempt: int,
        name: str,
        bad_nodes: tuple[str, ...] = (),
    ) -> str:
        self.submitted.append((config["entrypoint"], attempt))
        self.without.append(bad_nodes)
        return f"job-{attempt}"


def supervisor(api: Api, clock: FakeClock, **more: Any) -> JobSupervisor:
    def scan(path: Path) -> CheckpointFacts:
        return CheckpointFacts()

    policy = Policy(max_retries=2, retry_delay=10, jitter=0.0)
    told = {"explain": lambda output: Failure(kind="node-fail", text="a node died"), **more}
    return JobSupervisor(cast(Any, api), "job-0", policy, scan, clock=clock, **told)


def test_a_job_that_fails_is_submitted_again_as_it_was() -> None:
    api = Api(["PENDING", "RUNNING", "FAILED"], ["PENDING", "RUNNING", "SUCCEEDED"])
    result = supervisor(api, FakeClock()).run()
    assert (result.success, result.total_retries) == (True, 1)
    assert api.submitted == [("train {step}", 1)]


def test_a_job_that_always_fails_is_given_up() -> None:
    api = Api(["FAILED"], ["RUNNING", "FAILED"], ["RUNNING", "FAILED"])
    result = supervisor(api, FakeClock()).run()
    assert "given up after 2 restarts" in result.reason


def test_a_job_that_somebody_stopped_is_left_alone() -> None:
    api = Api(["RUNNING", "STOPPED"])
    result = supervisor(api, FakeClock()).run()
    assert (result.success, result.reason) == (False, "job job-0 was stopped")
    assert not api.submitted


def test_a_job_that_hangs_is_stopped_by_us_and_submitted_again() -> None:
    api = Api(["RUNNING"], ["RUNNING", "SUCCEEDED"])

    def watch(job: str, since: float) -> Sighting:
        hangs = job == "name" and not api.stopped
        return Sighting(hang="rank 3 sleeps", bundle="/b") if hangs else Sighting()

    said: list[str] = []
    result = supervisor(api, FakeClock(), watch=watch, say=said.append).run()
    assert result.success
    assert api.stopped == ["job-0"]
    assert "hang: rank 3 sleeps" in said


def test_a_dashboard_that_is_away_for_a_while_kills_nobody() -> None:
    api = Api(["RUNNING", "RUNNING", "SUCCEEDED"])
    api.silent = 20
    assert supervisor(api, FakeClock()).run().success


def test_placeholders_are_quoted_for_the_shell() -> None:
    found = checkpoint_at("/c/it's here/step_70/")
    assert found.step == 70
    filled = shell_filled("train --from {checkpoint} --step {step}", 1, found)
    assert filled == "train --from '/c/it'\"'\"'s here/step_70/' --step 70"
    assert shell_filled("train --from {checkpoint}", 0, None) == "train --from ''"


def test_bad_nodes_of_a_job_are_told_and_handed_to_the_next() -> None:
    api = Api(["RUNNING", "FAILED"], ["RUNNING", "SUCCEEDED"])
    told: list[tuple[str, str]] = []
    bad = BadNode(host="n7", why="Xid 79")
    result = supervisor(
        api,
        FakeClock(),
        watch=lambda job, since: Sighting(bad_nodes=(bad,)),
        notify=lambda event, text: told.append((event, text)),
    ).run()
    assert api.without == [("n7",)]
    assert told[0] == ("bad-node", "bad node n7: Xid 79")
    assert [node.host for node in result.bad_nodes] == ["n7"]

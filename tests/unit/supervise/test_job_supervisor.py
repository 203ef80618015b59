"""The course of a submitted job, with a job API that a test moves."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from ray_sentinel.clock import FakeClock
from ray_sentinel.errors import UnreachableError
from ray_sentinel.evidence.checkpoints import CheckpointFacts
from ray_sentinel.logs.checkpoints import scan_checkpoints
from ray_sentinel.supervise.bad_nodes import BadNode
from ray_sentinel.supervise.job_supervisor import JobSupervisor
from ray_sentinel.supervise.parts import JobParts, Sighting
from ray_sentinel.supervise.policy import Failure, Policy, ResumePoint
from ray_sentinel.supervise.ray_jobs import TEMPLATE, Jobs, RayJob, checkpoint_at, shell_filled
from ray_sentinel.supervise.task import JobTask


class Api:
    """Each job's statuses, one a look; the last one stays."""

    def __init__(self, *jobs: list[str]) -> None:
        self.plans = {f"job-{number}": plan for number, plan in enumerate(jobs)}
        self.submitted: list[tuple[str, int]] = []
        self.stopped: list[str] = []
        self.without: list[tuple[str, ...]] = []
        self.silent = 0
        self.deaf = 0
        """So many submissions are not taken."""
        self.forgetful = False
        """The next submission is taken, and its answer lost."""
        self.unstoppable = 0

    def job(self, job_id: str) -> RayJob:
        return RayJob(id=job_id, status="RUNNING", message="it broke", template="train {step}",
                   name="name", attempt=0, options={"metadata": {}})  # fmt: skip

    def status(self, job_id: str) -> str:
        if self.silent:
            self.silent -= 1
            raise UnreachableError("nobody answers")
        if job_id not in self.plans:
            return "UNKNOWN"
        plan = self.plans[job_id]
        return plan.pop(0) if len(plan) > 1 else plan[0]

    def step(self, job_id: str) -> int | None:
        return None

    def output(self, job_id: str) -> str:
        return ""

    def stop(self, job_id: str) -> None:
        self.stopped.append(job_id)
        if self.unstoppable:
            self.unstoppable -= 1
            raise UnreachableError("nobody answers")
        self.plans[job_id] = ["STOPPED"]

    def submit(
        self,
        config: Mapping[str, Any],
        checkpoint: ResumePoint | None,
        attempt: int,
        name: str,
        bad_nodes: tuple[str, ...] = (),
        submission_id: str = "",
    ) -> str:
        if self.deaf:
            self.deaf -= 1
            raise UnreachableError("nobody answers")
        self.submitted.append((config["entrypoint"], attempt))
        self.without.append(bad_nodes)
        if self.forgetful:
            self.forgetful = False
            self.plans[submission_id] = self.plans.pop(f"job-{attempt}")
            raise UnreachableError("the connection was lost")
        return f"job-{attempt}"


def supervisor(
    api: Api, clock: FakeClock, checkpoint_dirs: tuple[Path, ...] = (), **more: Any
) -> JobSupervisor:
    def scan(path: Path) -> CheckpointFacts:
        return CheckpointFacts()

    policy = Policy(max_retries=2, retry_delay=10, jitter=0.0)
    node_died = Failure(kind="node-fail", text="a node died")
    parts = JobParts(**{"scan": scan, "explain": lambda output: node_died, **more})
    task = JobTask(job_id="job-0", checkpoint_dirs=checkpoint_dirs)
    return JobSupervisor(cast(Any, api), task, policy, parts, clock=clock)


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


def test_a_dashboard_that_is_away_when_the_job_is_to_be_submitted_again() -> None:
    api = Api(["RUNNING", "FAILED"], ["RUNNING", "SUCCEEDED"])
    api.deaf = 5
    assert supervisor(api, FakeClock()).run().success
    assert api.submitted == [("train {step}", 1)]
    api = Api(["RUNNING", "FAILED"])
    api.deaf = 10_000
    with pytest.raises(UnreachableError):
        supervisor(api, FakeClock()).run()


def test_a_submission_whose_answer_is_lost_is_not_made_twice() -> None:
    api = Api(["RUNNING", "FAILED"], ["RUNNING", "SUCCEEDED"])
    api.forgetful = True
    follows = supervisor(api, FakeClock())
    assert follows.run().success
    assert api.submitted == [("train {step}", 1)]
    assert re.fullmatch(r"raysubmit_[0-9a-f]{16}", follows.job_id)


def test_a_job_that_could_not_be_stopped_is_stopped_later() -> None:
    api = Api(["RUNNING"], ["RUNNING", "SUCCEEDED"])
    api.unstoppable = 3
    result = supervisor(
        api,
        FakeClock(),
        watch=lambda job, since: Sighting() if api.submitted else Sighting(hang="x", bundle="/b"),
    ).run()
    assert result.success
    assert api.stopped == ["job-0"] * 4


def test_placeholders_are_quoted_for_the_shell() -> None:
    found = checkpoint_at("/c/it's here/step_70/")
    assert found.step == 70
    filled = shell_filled("train --from {checkpoint} --step {step}", 1, found)
    assert filled == "train --from '/c/it'\"'\"'s here/step_70/' --step 70"
    assert shell_filled("train --from {checkpoint}", 0, None) == "train --from ''"


@pytest.mark.parametrize(
    ("entrypoint", "without", "with_two"),
    [
        ("srun --exclude={bad_nodes} t.sh", "srun t.sh", "srun --exclude=n7,n9 t.sh"),
        ('srun --exclude="{bad_nodes}" t.sh', "srun t.sh", 'srun --exclude="n7,n9" t.sh'),
        ("srun -x {bad_nodes} t.sh", "srun -x '' t.sh", "srun -x n7,n9 t.sh"),
        ("srun -x n1,{bad_nodes} t.sh", "srun -x n1 t.sh", "srun -x n1,n7,n9 t.sh"),
        ("train --without={bad_nodes}", "train ", "train --without=n7,n9"),
        ("(train --without={bad_nodes}); x", "(train ); x", "(train --without=n7,n9); x"),
        ("BAD={bad_nodes} train", "BAD= train", "BAD=n7,n9 train"),
        ("a --x={bad_nodes}\nb", "a \nb", "a --x=n7,n9\nb"),
        ("awk '{print $1}' ${A} {other}", "awk '{print $1}' ${A} {other}", ""),
    ],
)
def test_bad_nodes_in_an_entrypoint(entrypoint: str, without: str, with_two: str) -> None:
    assert shell_filled(entrypoint, 0, None) == without
    assert shell_filled(entrypoint, 1, None, ["n7", "n9"]) == (with_two or without)


def test_what_stands_for_one_placeholder_is_none_itself() -> None:
    odd = ResumePoint(path="/c/{step}/{bad_nodes}", step=7)
    filled = shell_filled("t {checkpoint} {bad_nodes}", 1, odd, ["n7"])
    assert shlex.split(filled) == ["t", "/c/{step}/{bad_nodes}", "n7"]


class Client:
    """Takes what Ray's job client would be given, and answers as told: an exception is raised."""

    def __init__(self, **answers: Any) -> None:
        self.given: list[dict[str, Any]] = []
        self.answers = answers

    def submit_job(self, **options: Any) -> str:
        self.given.append(options)
        return f"job-{len(self.given)}"

    def __getattr__(self, name: str) -> Any:
        answer = self.answers[name]

        def say(job_id: str) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer

        return say


def jobs_of(client: Client) -> Jobs:
    return Jobs("http://127.0.0.1:1", client)


def test_what_an_answer_says_beside_its_status_is_not_taken_for_one() -> None:
    where = "Request failed with status code 500: Traceback ... line 404, in job 400: does not"
    with pytest.raises(UnreachableError):
        jobs_of(Client(get_job_status=RuntimeError(where))).status("job-0")
    none = RuntimeError("Request failed with status code 404: Job job-0 does not exist.")
    assert jobs_of(Client(get_job_status=none)).status("job-0") == "UNKNOWN"


def test_output_that_was_lost_with_its_node_is_empty() -> None:
    lost = RuntimeError("Request failed with status code 500: the node is gone")
    jobs = jobs_of(Client(get_job_status="FAILED", get_job_logs=lost))
    assert (jobs.output("job-0"), jobs.step("job-0")) == ("", None)
    with pytest.raises(UnreachableError):
        jobs_of(Client(get_job_status=lost, get_job_logs=lost)).output("job-0")


def test_a_checkpoint_that_does_not_load_is_no_progress(tmp_path: Path) -> None:
    """Of two checkpoints the later one does not load, and with the other one it fails too."""
    for step in (500, 1000):
        (tmp_path / f"step_{step}").mkdir()
        (tmp_path / f"step_{step}/model.bin").write_bytes(b"x")
    api = Api(*[["RUNNING", "FAILED"] for _ in range(20)])
    failures = iter(["checkpoint-load"])
    follows = supervisor(
        api,
        FakeClock(),
        scan=scan_checkpoints,
        explain=lambda output: Failure(kind=next(failures, "node-fail"), text="it failed"),
        checkpoint_dirs=(tmp_path,),
    )
    assert "given up after 2 restarts" in follows.run().reason
    assert len(api.submitted) == 2


def test_a_submission_fills_in_and_keeps_what_it_was() -> None:
    client = Client()
    jobs = jobs_of(client)
    config = {
        "entrypoint": "train --from {checkpoint} --exclude={bad_nodes} --try {attempt}",
        "metadata": {"team": "x"},
        "runtime_env": {"env_vars": {"A": "1", "RAY_SENTINEL_BAD_NODES": "old"}},
    }
    jobs.submit(config, ResumePoint(path="/c/step_7", step=7), 2, "llama", ("n7",))
    jobs.submit(config, None, 0, "llama")
    again, first = client.given
    assert again["entrypoint"] == "train --from /c/step_7 --exclude=n7 --try 2"
    assert first["entrypoint"] == "train --from '' --try 0"
    assert again["metadata"][TEMPLATE] == first["metadata"][TEMPLATE] == config["entrypoint"]
    assert again["metadata"]["team"] == "x"
    told = again["runtime_env"]["env_vars"]
    assert (told["RAY_SENTINEL_BAD_NODES"], told["RAY_SENTINEL_STEP"], told["A"]) == (
        "n7",
        "7",
        "1",
    )
    told = first["runtime_env"]["env_vars"]
    assert told["RAY_SENTINEL_BAD_NODES"] == ""
    assert "RAY_SENTINEL_CHECKPOINT" not in told


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

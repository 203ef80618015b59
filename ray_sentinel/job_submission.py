"""Jobs of ``ray job submit``: submit with a checkpoint, look, follow, restart by id.

``address`` is the dashboard's (``http://HOST:8265``); empty is what ``ray job`` itself would use.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ray_sentinel.config import Config, load
from ray_sentinel.logs.checkpoints import scan_checkpoints
from ray_sentinel.model.ray_job import JobState
from ray_sentinel.supervise.actions import RunResult
from ray_sentinel.supervise.checkpoint_choice import choose
from ray_sentinel.supervise.job_supervisor import JobSupervisor
from ray_sentinel.supervise.notify.notifier import Notifier
from ray_sentinel.supervise.parts import JobParts
from ray_sentinel.supervise.policy import Failure, Policy
from ray_sentinel.supervise.ray_jobs import Jobs, checkpoint_at
from ray_sentinel.supervise.run_folder import State
from ray_sentinel.supervise.task import JobTask
from ray_sentinel.supervised_run import (
    checkpoint_folders,
    explain,
    make_policy,
    poll_page,
    run_notice,
    watched_page,
)


def submit_job_with_resume(
    checkpoint_path: str | os.PathLike[str], config: Mapping[str, Any], address: str = ""
) -> str:
    """Submit a job that resumes from a checkpoint; its id.

    ``config`` has an ``entrypoint`` and may have a ``runtime_env``, ``metadata`` and resources, as
    Ray's ``JobSubmissionClient.submit_job``. ``{checkpoint}``, ``{step}``, ``{attempt}`` and
    ``{bad_nodes}`` (none yet) in the entrypoint are replaced, and are in the job's environment as
    ``RAY_SENTINEL_CHECKPOINT`` and so on. An empty path is the beginning. Raises UsageError,
    UnreachableError.
    """
    path = os.fspath(checkpoint_path)
    return Jobs(address).submit(config, checkpoint_at(path) if path else None, attempt=0)


def check_job_status(job_id: str, address: str = "") -> JobState:
    """RUNNING, FAILED, SUCCEEDED, PENDING, STOPPED or UNKNOWN. Raises UnreachableError."""
    return Jobs(address).status(job_id)


def get_current_step(job_id: str, address: str = "") -> int | None:
    """The last step reported in the job's output. Raises UsageError, UnreachableError."""
    return Jobs(address).step(job_id)


def restart_job(
    job_id: str,
    checkpoint_dir: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    address: str = "",
) -> str:
    """Stop a job, if it runs, and submit it again from its latest good checkpoint; the new id.

    Its entrypoint, runtime environment and metadata are kept. Raises UsageError, SentinelError.
    """
    jobs = Jobs(address)
    job = jobs.job(job_id)
    if job.status in ("RUNNING", "PENDING"):
        jobs.stop(job_id)
    found = choose(checkpoint_folders(checkpoint_dir), (), scan_checkpoints).checkpoint
    config = {**job.options, "entrypoint": job.template}
    return jobs.submit(config, found, job.attempt + 1, job.name)


def supervise_job(
    job_id: str,
    checkpoint_dir: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    address: str = "",
    page: str | None = None,
    say: Callable[[str], None] = lambda text: None,
    check_interval: float = 5.0,
    config: Config | None = None,
    **policy: Any,
) -> tuple[RunResult, str]:
    """Follow a submitted job, restart it as ``run`` does a command; the result and the last id.

    ``config`` says who is notified (``[notify]``) and which port the coordinator has.
    """
    settings = config or load()
    where = watched_page(page, settings, os.environ, say)
    task = JobTask(
        job_id=job_id,
        checkpoint_dirs=checkpoint_folders(checkpoint_dir),
        check_interval=check_interval,
    )
    parts = JobParts(
        scan=scan_checkpoints,
        explain=explain_output,
        watch=lambda job, since: poll_page(where, job, since),
        say=say,
    )
    return follow(Jobs(address), task, make_policy(policy), parts, settings)


def follow(
    jobs: Jobs, task: JobTask, policy: Policy, parts: JobParts, settings: Config
) -> tuple[RunResult, str]:
    """``supervise_job`` for jobs wherever they are; ``settings`` say who is notified."""
    notifier, say = Notifier(settings.notify), parts.say
    parts = msgspec.structs.replace(
        parts, notify=lambda event, text: notifier.notify(run_notice(task.job_id, event, text))
    )
    supervisor = JobSupervisor(jobs, task, policy, parts)
    try:
        return supervisor.run(), supervisor.job_id
    finally:
        if not notifier.close():
            say(f"not everybody was told: {notifier.problem or 'a receiver does not answer'}")


def explain_output(output: str) -> Failure:
    """The failure that a job's output shows."""
    with tempfile.TemporaryDirectory(prefix="ray_sentinel-job-") as folder:
        (Path(folder) / "output.log").write_text(output, encoding="utf-8", errors="replace")
        state = State(keeper=0, keeper_start=0, code=1, ended_at=time.time())
        return explain(Path(folder), state) or Failure(kind="exit", text="it failed")

"""``auto_restart`` and ``submit_job_with_resume`` for jobs of a head pod's cluster, or of this one.

The supervision itself is ``supervise.job_supervisor``; here it is given jobs and checkpoint folders
that are reached through kubectl.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ray_sentinel.config import load
from ray_sentinel.errors import SentinelError, UsageError
from ray_sentinel.job_submission import explain_output, follow
from ray_sentinel.logs.checkpoints import scan_checkpoints
from ray_sentinel.monitor.activity import JobLog, logged
from ray_sentinel.monitor.pod_jobs import PodFiles, jobs_of
from ray_sentinel.monitor.shell import Shell
from ray_sentinel.monitor.types import RestartResult
from ray_sentinel.supervise.parts import JobParts
from ray_sentinel.supervise.policy import Policy
from ray_sentinel.supervise.ray_jobs import checkpoint_at, names_in
from ray_sentinel.supervise.task import JobTask
from ray_sentinel.supervised_run import checkpoint_folders, make_policy, poll_page, watched_page

Folders = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def auto_restart(
    head_pod: str,
    job_name: str,
    checkpoint_dir: Folders = (),
    max_retries: int = 10,
    retry_delay: float = 60,
    stagnation_threshold: float = 300,
    check_interval: float = 30,
    namespace: str = "default",
    **policy: Any,
) -> RestartResult:
    """Watch a job of ``ray job submit``; restart it from its latest good checkpoint; blocks.

    ``job_name`` is its submission id, the name in its metadata (``name``, ``job_name``) or a word
    of its entrypoint; of several the latest. ``checkpoint_dir`` is a folder in the pod, or several.
    Delays double with each restart that makes no progress. ``policy`` are further fields of
    ``supervise.policy.Policy``, such as ``startup_threshold``: before its first steps an attempt is
    given 1800 s. What cannot be reached or found is a ``reason``; raises UsageError for wrong
    arguments.
    """
    rules = make_policy(
        {
            "max_retries": max_retries,
            "retry_delay": retry_delay,
            "stagnation_threshold": stagnation_threshold,
            **policy,
        }
    )
    if not job_name:
        raise UsageError("auto_restart() needs the job's name, or its submission id")
    folders = _folders(head_pod, checkpoint_dir)
    activity = JobLog(job_name)
    with logged(shown=True):
        activity.note(f"watching {job_name} {f'in pod {head_pod}' if head_pod else 'here'}")
        result = _followed(head_pod, namespace, job_name, folders, rules, check_interval, activity)
        how = "succeeded" if result["success"] else "failed"
        level = logging.INFO if result["success"] else logging.ERROR
        activity.note(f"{job_name} {how}: {result['reason']}", level)
    return result


def _followed(
    head_pod: str,
    namespace: str,
    job_name: str,
    folders: tuple[Path, ...],
    rules: Policy,
    check_interval: float,
    activity: JobLog,
) -> RestartResult:
    job_id, jobs = "", None  # until they are known
    try:
        jobs = jobs_of(head_pod, namespace, activity.note)
        job_id = jobs.named(job_name)
        activity.note(f"{job_name} is job {job_id}")
        task = JobTask(
            job_id=job_id, checkpoint_dirs=folders, check_interval=max(0.05, check_interval)
        )
        parts = _parts(head_pod, namespace, activity)
        result, job_id = follow(jobs, task, rules, parts, load())
    except SentinelError as error:
        return RestartResult(
            success=False,
            final_step=jobs.last_step if jobs is not None else None,
            total_retries=jobs.submissions if jobs is not None else 0,
            reason=str(error),
            job_id=job_id,
            time_lost_seconds=0.0,
        )
    return RestartResult(
        success=result.success,
        final_step=result.final_step,
        total_retries=result.total_retries,
        reason=result.reason,
        job_id=job_id,
        time_lost_seconds=result.time_lost_seconds,
    )


def _parts(head_pod: str, namespace: str, activity: JobLog) -> JobParts:
    if head_pod:
        # Another machine's coordinator is not asked: its page listens on loopback.
        files = PodFiles(Shell(head_pod, namespace))
        return JobParts(
            scan=files.scan,
            problem_at=files.problem_at,
            explain=explain_output,
            say=activity.note,
        )
    page = watched_page(None, load(), os.environ, activity.note)
    return JobParts(
        scan=scan_checkpoints,
        explain=explain_output,
        watch=lambda job, since: poll_page(page, job, since),
        say=activity.note,
    )


def _folders(head_pod: str, given: Folders) -> tuple[Path, ...]:
    """Absolute paths; those in a pod must be absolute already, because it is unknown which folder
    they would be relative to. Raises UsageError."""
    if not head_pod:
        return checkpoint_folders(given)
    several = [given] if isinstance(given, str | os.PathLike) else given
    for one in several:
        if not os.fspath(one).startswith("/"):
            raise UsageError(
                f"checkpoint folder {os.fspath(one)!r}: give its absolute path in pod {head_pod}"
            )
    return tuple(Path(one) for one in several)


def submit_job_with_resume(
    head_pod: str,
    checkpoint_path: str | os.PathLike[str],
    config: Mapping[str, Any],
    namespace: str = "default",
) -> str:
    """Submit a job that resumes from a checkpoint; its id.

    ``config`` and what the job is told are as in ``job_submission.submit_job_with_resume``; the
    checkpoint and a working folder are paths in the pod. Raises UsageError, UnreachableError.
    """
    path = os.fspath(checkpoint_path)
    load()  # an invalid configuration is reported before there is a job
    with logged():
        jobs = jobs_of(head_pod, namespace)
        job_id = jobs.submit(config, checkpoint_at(path) if path else None, attempt=0)
        name = next(iter(names_in(config.get("metadata"))), job_id)
        JobLog(name).note(f"job {job_id} was submitted, from {path or 'the beginning'}")
    return job_id

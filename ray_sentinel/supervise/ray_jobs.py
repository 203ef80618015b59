"""Jobs of ``ray job submit``: submitted with a checkpoint, watched, and restarted by their id.

They are reached through the dashboard's address (``http://HOST:8265``). An entrypoint may hold
``{checkpoint}``, ``{step}``, ``{attempt}`` and ``{bad_nodes}``; what it was like before they were
filled in travels in the job's metadata, so that a job can be restarted again.
"""

from __future__ import annotations

import os
import secrets
import shlex
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.errors import SentinelError, UnreachableError, UsageError
from ray_sentinel.evidence.logs.training.bare_steps import LastStep
from ray_sentinel.model.ray_job import JobState, job_state
from ray_sentinel.supervise.attempt.command import LISTED, PLACE, values_of, variables
from ray_sentinel.supervise.policy import ResumePoint

TEMPLATE = "ray_sentinel.entrypoint"
ATTEMPT = "ray_sentinel.attempt"
NAME = "ray_sentinel.job"
"""Keys of a job's metadata under which we keep its entrypoint, its attempt and its name."""
LOCAL = "http://127.0.0.1:8265"
STOP_SECONDS = 60.0
"""Seconds to wait for a job to stop: Ray kills it some seconds after asking it."""
AGENT_SECONDS = 60.0
"""Seconds to wait until a dashboard that has just started accepts a job."""
TAIL = 1 << 18
"""Characters at the end of a job's output that are looked at."""
_IDLE = re.compile(r"""(?<!\S)-[^=\s'"]*=(["']?)\{bad_nodes\}\1(?=[\s;&|)]|$)[^\S\n]?""")
"""An option that is there for the bad nodes alone, as a word of a shell, and the blank after it."""
_KNOWN = frozenset(
    {"entrypoint", "runtime_env", "metadata", "submission_id", "entrypoint_num_cpus"}
    | {"entrypoint_num_gpus", "entrypoint_memory", "entrypoint_resources"}
)


class RayJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job as Ray knows it. Ray does not report what resources its entrypoint requested."""

    id: str
    status: JobState
    message: str
    template: str
    """The entrypoint with its placeholders."""
    name: str
    attempt: int
    options: dict[str, Any]
    """Options for a new submission: runtime environment, metadata, resources."""
    started_at: float | None = None


def address_of(address: str = "", environ: Mapping[str, str] = os.environ) -> str:
    """The dashboard's address: as given, or as ``ray job`` itself would find it."""
    named = environ.get("RAY_API_SERVER_ADDRESS", "") or environ.get("RAY_ADDRESS", "")
    return address or (named if named.startswith("http") else "") or LOCAL


class Jobs:
    """One cluster's jobs. Every method raises UnreachableError if nobody answers."""

    def __init__(self, address: str = "", client: Any = None) -> None:
        """``client`` has the methods of Ray's ``JobSubmissionClient``, which is the default;
        ``address`` is then the one it uses, for messages."""
        if client is not None:
            self.address, self._client = address, client
            return
        try:
            from ray.job_submission import JobSubmissionClient
        except ImportError as error:
            raise UnreachableError(
                f"Ray's job client is missing: pip install 'ray[default]' ({error})"
            ) from None
        self.address = address_of(address)
        try:
            self._client = JobSubmissionClient(self.address)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise UnreachableError(
                f"{self.address}: no Ray dashboard answers ({_first(error)}); give its address, "
                "such as http://HOST:8265, or start Ray with --include-dashboard=true"
            ) from None

    def submit(
        self,
        config: Mapping[str, Any],
        checkpoint: ResumePoint | None,
        attempt: int,
        name: str = "",
        bad_nodes: Sequence[str] = (),
        submission_id: str = "",
    ) -> str:
        """Submit a job that starts from a checkpoint. Returns its id. Raises UsageError.

        If the answer may get lost, a ``submission_id`` of one's own (``new_id()``) shows later
        whether the job exists.
        """
        entrypoint = _entrypoint(config)
        metadata = {key: str(value) for key, value in (config.get("metadata") or {}).items()}
        job = name or metadata.get(NAME, "") or "job"
        environment = dict(config.get("runtime_env") or {})
        ours = variables(job, attempt, checkpoint, bad_nodes)
        told = {**environment.get("env_vars", {}), **ours}
        if checkpoint is None:
            told.pop("RAY_SENTINEL_CHECKPOINT", None)
        options = {key: value for key, value in config.items() if key != "submission_id"}
        options |= {
            "entrypoint": shell_filled(entrypoint, attempt, checkpoint, bad_nodes),
            "runtime_env": {**environment, "env_vars": told},
            "metadata": {**metadata, TEMPLATE: entrypoint, ATTEMPT: str(attempt), NAME: job},
        }
        if submission_id:
            options["submission_id"] = submission_id
        return self._submit(options)

    def _submit(self, options: Mapping[str, Any]) -> str:
        until = time.monotonic() + AGENT_SECONDS
        while True:
            try:
                return str(self._ask("submit_job", **options))
            except UnreachableError as error:
                # A dashboard that has just started takes jobs only once a node's agent is up.
                if "No available agent" not in str(error) or time.monotonic() > until:
                    raise
            time.sleep(1.0)

    def job(self, job_id: str) -> RayJob:
        """What Ray knows about a job. Raises UsageError for an unknown id."""
        info = self._ask("get_job_info", job_id)
        metadata = dict(info.metadata or {})
        options: dict[str, Any] = {
            "runtime_env": dict(info.runtime_env or {}),
            "metadata": {k: v for k, v in metadata.items() if k not in (TEMPLATE, ATTEMPT)},
        }
        attempt = metadata.get(ATTEMPT, "0")
        return RayJob(
            id=job_id,
            status=_status(info.status),
            message=str(info.message or ""),
            template=metadata.get(TEMPLATE) or str(info.entrypoint),
            name=next(iter(names_in(metadata)), job_id),
            attempt=int(attempt) if attempt.isdigit() else 0,
            options=options,
            started_at=info.start_time / 1000.0 if info.start_time else None,
        )

    def named(self, name: str) -> str:
        """The id of the latest job with that name: by its submission id or the name in its
        metadata, or else by a word of its entrypoint. Raises UsageError if there is none."""
        found = list(self._ask("list_jobs"))
        jobs = [job for job in found if job.submission_id]
        called = [job for job in jobs if name in (job.submission_id, *names_in(job.metadata))]
        called = called or [job for job in jobs if _mentions(str(job.entrypoint), name)]
        if called:
            return str(max(called, key=lambda job: job.start_time or 0).submission_id)
        if any(_mentions(str(job.entrypoint), name) for job in found if not job.submission_id):
            raise UsageError(
                f"{name} was not submitted to Ray, which cannot start it again: start its command "
                "with `ray-sentinel run`"
            )
        raise UsageError(
            f"{self.address}: no job has the submission id or the name {name}, or names it in its "
            "entrypoint: see `ray job list`"
        )

    def status(self, job_id: str) -> JobState:
        """The job's status; UNKNOWN if there is no such job."""
        try:
            return _status(self._ask("get_job_status", job_id))
        except UsageError:
            return "UNKNOWN"

    def output(self, job_id: str) -> str:
        """The end of what the job's driver printed; empty if it was lost with its node."""
        try:
            return str(self._ask("get_job_logs", job_id))[-TAIL:]
        except UnreachableError:
            self.status(job_id)  # raises where it is the dashboard that does not answer
            return ""

    def step(self, job_id: str) -> int | None:
        """The last step in the output."""
        last = LastStep()
        last.feed(self.output(job_id).replace("\r", "\n").split("\n"))
        return last.step.step if last.step is not None else None

    def stop(self, job_id: str) -> None:
        """Stop a job and wait until it has stopped. Raises SentinelError if it does not."""
        self._ask("stop_job", job_id)
        until = time.monotonic() + STOP_SECONDS
        while self.status(job_id) in ("RUNNING", "PENDING"):
            if time.monotonic() > until:
                raise SentinelError(f"job {job_id} did not stop within {STOP_SECONDS:.0f} s")
            time.sleep(0.5)

    def _ask(self, method: str, *arguments: Any, **options: Any) -> Any:
        try:
            return getattr(self._client, method)(*arguments, **options)
        except (RuntimeError, ValueError) as error:
            if _is_ours(str(error)):
                raise UsageError(f"{method}: {_first(error)}") from None
            raise UnreachableError(f"{self.address}: {method}: {_first(error)}") from None
        except OSError as error:
            raise UnreachableError(f"{self.address}: {method}: {_first(error)}") from None


def _is_ours(error: str) -> bool:
    """Whether the request was for something that does not exist. The client says so in words only;
    it sets the answer's status before the answer (``dashboard/modules/dashboard_sdk.py``)."""
    if answered := re.match(r"Request failed with status code (\d+)", error):
        return answered[1] in ("400", "404")
    return re.search(r"not exist|does not", error) is not None


def names_in(metadata: Mapping[str, str] | None) -> list[str]:
    """The names of a job in its metadata, the best one first."""
    return [value for key in (NAME, "name", "job_name") if (value := (metadata or {}).get(key))]


def _mentions(text: str, name: str) -> bool:
    """Whether ``name`` stands in a command line as a word: ``llama`` is not in ``llama-2``."""
    at = text.find(name) if name else -1
    while at >= 0:
        beside = text[max(0, at - 1) : at] + text[at + len(name) : at + len(name) + 1]
        if not any(letter.isalnum() or letter in "-_" for letter in beside):
            return True
        at = text.find(name, at + 1)
    return False


def _entrypoint(config: Mapping[str, Any]) -> str:
    """Raises UsageError if there is none, or if there is a key that no job has."""
    entrypoint = config.get("entrypoint")
    if not isinstance(entrypoint, str) or not entrypoint.strip():
        raise UsageError("the job's config needs an entrypoint, such as 'python train.py'")
    for key in config.keys() - _KNOWN:
        raise UsageError(f"the job's config has no {key}; there are: {', '.join(sorted(_KNOWN))}")
    return entrypoint


def new_id() -> str:
    """A unique submission id, in Ray's own format."""
    return f"raysubmit_{secrets.token_hex(8)}"


def shell_filled(
    entrypoint: str,
    attempt: int,
    checkpoint: ResumePoint | None,
    bad_nodes: Sequence[str] = (),
) -> str:
    """The entrypoint, which a shell runs, with its placeholders filled in and quoted.

    As in ``command.filled``: without bad nodes, an option that has no other value
    (``--exclude={bad_nodes}``) is left out, and no empty name stays in a list of the user's own.
    """
    plain = values_of(attempt, checkpoint, bad_nodes)
    values = {name: shlex.quote(value) for name, value in plain.items()}
    if not bad_nodes:
        values["bad_nodes"] = ""
        entrypoint = LISTED.sub("", _IDLE.sub("", entrypoint))
        # A word of its own stays one: the option before it would take the next for its value.
        entrypoint = re.sub(r"(?<!\S)\{bad_nodes\}(?!\S)", "''", entrypoint)
    return PLACE.sub(lambda found: values[found[1]], entrypoint)


def checkpoint_at(path: str) -> ResumePoint:
    """A checkpoint given only by its path: its step is the last number in its name, or else 0."""
    numbers = re.findall(r"\d+", os.path.basename(path.rstrip("/")))
    return ResumePoint(path=path, step=int(numbers[-1]) if numbers else 0)


def _status(status: Any) -> JobState:
    return job_state(str(getattr(status, "value", status)))


def _first(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0].strip()[:300] if lines else type(error).__name__

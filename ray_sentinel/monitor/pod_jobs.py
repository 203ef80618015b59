"""Ray's jobs and the checkpoints of a head pod, reached by ``kubectl exec`` alone.

Nothing of ours need be installed in the pod: what runs there is a few lines of Python with the
pod's own Ray. A job's submission goes over standard input, because its environment may hold secrets
and anybody can see command lines.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

from ray_sentinel.clock import Clock, SystemClock
from ray_sentinel.errors import SentinelError, UnreachableError
from ray_sentinel.evidence.checkpoints import CheckpointFacts
from ray_sentinel.monitor.shell import Shell
from ray_sentinel.monitor.training import list_checkpoints
from ray_sentinel.supervise import loadable
from ray_sentinel.supervise.job_supervisor import OUT_OF_REACH_SECONDS
from ray_sentinel.supervise.ray_jobs import LOCAL, TAIL, Jobs, address_of

CALL_SECONDS = 60.0
"""Seconds for one call of Ray's job API: Ray is imported for it."""
SUBMIT_SECONDS = 600.0
"""Seconds for a submission, which uploads its working folder."""
LOOK_SECONDS = 120.0
"""Seconds to read the headers of a checkpoint's files on a shared file system."""

T = TypeVar("T")

_MARK = "ray_sentinel answers: "
# Ray's own interpreter first; a pod may have others.
_PYTHON = """
first=$(sed -n '1s/^#![[:space:]]*//p' "$(command -v ray)" 2>/dev/null)
for python in "$first" python3 python; do
  [ -n "$python" ] || continue
  "$python" -c 'import importlib.util as u, sys; sys.exit(not u.find_spec("ray"))' 2>/dev/null &&
    exec "$python" "$@"
done
echo "no Python with Ray is in this pod" >&2
exit 127
"""
_ADDRESS = """
from ray.dashboard.utils import get_address_for_submission_client as find
print("ray_sentinel answers: " + find(None))
"""
_CLIENT = """
import json, os, sys

FIELDS = ("submission_id", "status", "message", "metadata", "runtime_env", "entrypoint",
          "start_time")

def plain(value):
    if isinstance(value, list):
        return [plain(one) for one in value]
    if hasattr(value, "entrypoint"):
        return {name: plain(getattr(value, name, None)) for name in FIELDS}
    return getattr(value, "value", value)

asked = json.load(sys.stdin)
try:
    from ray.job_submission import JobSubmissionClient
    try:
        from ray.dashboard.utils import get_address_for_submission_client as find
        address = find(None)
    except Exception:
        address = os.environ.get("RAY_API_SERVER_ADDRESS") or asked["local"]
    method = getattr(JobSubmissionClient(address), asked["method"])
    answer = plain(method(*asked["arguments"], **asked["options"]))
    if isinstance(answer, str):
        answer = answer[-asked["most"]:]
    told = {"answer": answer}
except Exception as error:
    told = {"error": str(error), "input": isinstance(error, (RuntimeError, ValueError))}
print("\\nray_sentinel answers: " + json.dumps(told))
"""
_LOADABLE = """
import sys
print("ray_sentinel answers: " + problem_of(Path(sys.argv[1])))
"""


class PodClient:
    """The methods of Ray's ``JobSubmissionClient`` that ``Jobs`` uses, run in the pod.

    They raise UnreachableError if the pod or its dashboard does not answer, RuntimeError if
    Ray refuses, as the client itself does.
    """

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method.startswith("_"):
            raise AttributeError(method)
        return partial(self._call, method)

    def _call(self, method: str, *arguments: Any, **options: Any) -> Any:
        asked = {
            "method": method,
            "arguments": arguments,
            "options": options,
            "local": LOCAL,
            "most": TAIL,
        }
        deadline = SUBMIT_SECONDS if method == "submit_job" else CALL_SECONDS
        told = json.loads(_in_pod(self._shell, _CLIENT, (), deadline, json.dumps(asked).encode()))
        if "error" in told:
            kind = RuntimeError if told["input"] else ConnectionError
            raise kind(told["error"])
        return _object(told["answer"])


def _object(answer: Any) -> Any:
    if isinstance(answer, list):
        return [_object(one) for one in answer]
    if isinstance(answer, dict) and "entrypoint" in answer:
        return SimpleNamespace(**answer)
    return answer


def _in_pod(
    shell: Shell, program: str, arguments: tuple[str, ...], deadline: float, stdin: bytes = b""
) -> str:
    """The answer of a Python program in the pod. Raises UnreachableError if none comes."""
    argv = ("sh", "-c", _PYTHON, "sh", "-c", program, *arguments)
    text = shell.run(*argv, deadline=deadline, most=64 << 20, stdin=stdin)
    for line in reversed(text.splitlines()):
        if line.startswith(_MARK):
            return line.removeprefix(_MARK)
    raise UnreachableError(f"pod {shell.pod}: Ray's Python gave no answer: {text.strip()[-300:]}")


def here_address() -> str:
    """The dashboard of this machine's cluster, found as ``ray job`` finds it."""
    if (named := address_of()) != LOCAL:
        return named
    try:
        text = Shell().run(sys.executable, "-c", _ADDRESS, deadline=CALL_SECONDS)
    except SentinelError:
        return LOCAL
    found = [line for line in text.splitlines() if line.startswith(_MARK)]
    return found[-1].removeprefix(_MARK) if found else LOCAL


class PodFiles:
    """Checkpoint folders in a pod, in the form that ``JobParts`` needs. Methods wait while the pod
    is out of reach, for ``patience`` seconds: a folder that cannot be read now has not vanished."""

    def __init__(
        self, shell: Shell, clock: Clock | None = None, patience: float = OUT_OF_REACH_SECONDS
    ) -> None:
        self._shell, self._clock, self._patience = shell, clock or SystemClock(), patience

    def scan(self, folder: Path) -> CheckpointFacts:
        """The folder's checkpoints. Raises UnreachableError if it cannot be listed."""
        return self._patiently(lambda: list_checkpoints(self._shell, str(folder)))

    def problem_at(self, path: Path) -> str:
        """Why a checkpoint cannot load; empty if it seems whole."""
        program = inspect.getsource(loadable) + _LOADABLE
        asked = partial(_in_pod, self._shell, program, (str(path),), LOOK_SECONDS)
        try:
            return self._patiently(asked)
        except SentinelError as error:
            return f"{path}: could not be looked at: {error}"

    def _patiently(self, ask: Callable[[], T]) -> T:
        until = self._clock.monotonic() + self._patience
        while True:
            try:
                return ask()
            except UnreachableError:
                if self._shell.ask("true")[0] or self._clock.monotonic() >= until:
                    raise
            self._clock.sleep(5.0)


class NotedJobs(Jobs):
    """Jobs whose states and steps are noted when they change."""

    def __init__(self, address: str, client: Any, note: Callable[[str], None]) -> None:
        super().__init__(address, client)
        self._note = note
        self.last_step: int | None = None
        self.submissions = 0
        self._states: dict[str, str] = {}
        self._steps: dict[str, int | None] = {}

    def status(self, job_id: str) -> Any:
        """See ``Jobs.status``."""
        found = super().status(job_id)
        if self._states.get(job_id) != found:
            self._states[job_id] = found
            self._note(f"job {job_id} is {found}")
        return found

    def step(self, job_id: str) -> int | None:
        """See ``Jobs.step``."""
        found = super().step(job_id)
        if found is not None and self._steps.get(job_id) != found:
            self._steps[job_id] = self.last_step = found
            self._note(f"job {job_id} made step {found}")
        return found

    def submit(self, *arguments: Any, **more: Any) -> str:
        """See ``Jobs.submit``."""
        job_id = super().submit(*arguments, **more)
        self.submissions += 1
        return job_id


def jobs_of(
    head_pod: str, namespace: str, note: Callable[[str], None] = lambda text: None
) -> NotedJobs:
    """The jobs of a pod's cluster, or of this machine's. Raises UnreachableError."""
    if not head_pod:
        return NotedJobs(here_address(), None, note)
    return NotedJobs(f"pod {head_pod}", PodClient(Shell(head_pod, namespace)), note)

"""Jobs of ``ray job submit``, watched by their id: status, step, stall, end."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, overload

import msgspec

from ray_sentinel.clock import Clock, SystemClock
from ray_sentinel.errors import SentinelError
from ray_sentinel.evidence.logs.clocks import round_zone
from ray_sentinel.evidence.logs.lines.lines import parse_line
from ray_sentinel.evidence.logs.lines.times import parse_time
from ray_sentinel.evidence.logs.training.bare_steps import SplitSteps, surest
from ray_sentinel.evidence.logs.training.steps import ReportedStep
from ray_sentinel.evidence.node.ray_status import read_job_status
from ray_sentinel.model.ray_job import JobState
from ray_sentinel.monitor.activity import log, logged
from ray_sentinel.monitor.shell import Shell
from ray_sentinel.monitor.types import JobProgress, MonitorResult
from ray_sentinel.supervise.ray_jobs import Jobs

_TAIL = 512 * 1024
"""Most bytes from the end of a job's log in which its last steps are looked for."""
_ENDED = ("FAILED", "SUCCEEDED", "STOPPED")
_LOST_SECONDS = 300.0
"""Seconds after which a job that Ray says nothing about is no longer waited for."""
_LAST = 50
"""How many steps' figures make the throughput."""


class JobLogTail(msgspec.Struct, frozen=True):
    """The end of a job's log. ``changed``: Unix seconds of its last write, where known."""

    text: str = ""
    changed: float | None = None


def check_job_status(head_pod: str, job_id: str, namespace: str = "default") -> JobState:
    """RUNNING, FAILED, SUCCEEDED, PENDING or STOPPED; UNKNOWN if Ray does not report it."""
    try:
        _, text = Shell(head_pod, namespace).ask("ray", "job", "status", job_id)
    except SentinelError:
        return "UNKNOWN"
    return read_job_status(text, job_id)


def get_current_step(head_pod: str, job_id: str, namespace: str = "default") -> int | None:
    """The last training step in the job's log; None if there is none yet."""
    return get_progress(head_pod, job_id, namespace)["step"]


def get_progress(head_pod: str, job_id: str, namespace: str = "default") -> JobProgress:
    """The last step, and the throughput of the last ones."""
    return read_progress(log_tail(Shell(head_pod, namespace), job_id).text)


def read_progress(text: str) -> JobProgress:
    """The last step in a log's text, and the throughput of the last ones."""
    year = datetime.now(timezone.utc).year
    steps: list[tuple[ReportedStep, float | None]] = []
    when: float | None = None
    split = SplitSteps()
    for raw in text.splitlines():
        line = parse_line(raw)
        when = parse_time(line.prefix + line.text, year) or when
        step = split.feed(line.text)
        if step is not None and step.step is not None and not step.left:
            steps.append((step, when))
    last = surest(steps, lambda seen: seen[0])[-_LAST:]
    seconds = [step.seconds for step, _ in last if step.seconds]
    tokens = [step.tokens_per_second for step, _ in last if step.tokens_per_second]
    losses = [step.loss for step, _ in last if step.loss is not None]
    usual = statistics.median(seconds) if seconds else _from_times(last)
    return JobProgress(
        step=last[-1][0].step if last else None,
        total_steps=last[-1][0].total if last else None,
        step_seconds=usual,
        steps_per_second=1 / usual if usual else None,
        tokens_per_second=statistics.median(tokens) if tokens else None,
        loss=losses[-1] if losses else None,
        step_time=last[-1][1] if last else None,
    )


def _from_times(steps: list[tuple[ReportedStep, float | None]]) -> float | None:
    dated = [(step.step or 0, when) for step, when in steps if when is not None]
    if len(dated) < 2:
        return None
    made, took = dated[-1][0] - dated[0][0], dated[-1][1] - dated[0][1]
    return took / made if made > 0 and took > 0 else None


def _zone(tail: JobLogTail) -> float:
    """By how much the log's own times lag behind. They may be in any time zone; its last write, if
    its time is known, was that of its last line."""
    year = datetime.now(timezone.utc).year
    for raw in reversed(tail.text.splitlines()):
        if when := parse_time(raw, year):
            return round_zone(tail.changed - when) if tail.changed else 0.0
    return 0.0


class StallWatch:
    """Remembers when each job's step last changed, for logs whose lines have no time."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._seen: dict[tuple[str, str], tuple[int | None, float]] = {}

    def forget(self, key: tuple[str, str]) -> None:
        """Forget a job that has ended."""
        self._seen.pop(key, None)

    def stalled(self, key: tuple[str, str], tail: JobLogTail, threshold: float, now: float) -> bool:
        """Whether the job's step has not changed for ``threshold`` seconds, as far as known."""
        progress = read_progress(tail.text)
        step, mono = progress["step"], self._clock.monotonic()
        known = self._seen.get(key)
        if known is None or known[0] != step:
            self._seen[key] = known = (step, mono)
        if mono - known[1] >= threshold:
            return True
        if tail.changed is not None and now - tail.changed >= threshold:
            return True
        stepped = progress["step_time"]
        return stepped is not None and now - stepped - _zone(tail) >= threshold


WATCH = StallWatch()
"""What earlier calls in this process saw."""


def detect_stall(
    head_pod: str, job_id: str, stagnation_threshold: float = 300, namespace: str = "default"
) -> bool:
    """Whether a RUNNING job makes no progress for ``stagnation_threshold`` seconds.

    Judged by the times in its log, else by the log's last write, else by what earlier calls saw.
    """
    status = check_job_status(head_pod, job_id, namespace)
    if status in _ENDED:
        WATCH.forget((head_pod, job_id))
    if status != "RUNNING":
        return False
    tail = log_tail(Shell(head_pod, namespace), job_id)
    return WATCH.stalled((head_pod, job_id), tail, stagnation_threshold, time.time())


@overload
def monitor_job(
    head_pod: str,
    job_id: str,
    check_interval: float = 30,
    timeout: float | None = None,
    namespace: str = "default",
    stagnation_threshold: float = 300,
) -> MonitorResult: ...


@overload
def monitor_job(
    job_id: str,
    check_interval: float = 30,
    timeout: float | None = None,
    address: str = "",
    clock: Clock | None = None,
    stagnation_threshold: float = 300,
) -> MonitorResult: ...


def monitor_job(*arguments: Any, **more: Any) -> MonitorResult:
    """Watch a job until it ends, or for ``timeout`` seconds.

    ``monitor_job(head_pod, job_id, check_interval=30, timeout=None, namespace="default",
    stagnation_threshold=300)`` asks in a pod, or here where ``head_pod`` is empty; it raises
    nothing, and a job that Ray does not know for minutes is given up.

    ``monitor_job(job_id, check_interval=30, timeout=None, address="", clock=None,
    stagnation_threshold=300)`` asks the dashboard at ``address``, and ends at once for a job that
    does not exist. Raises UsageError, UnreachableError.
    """
    in_pod = names_pod(arguments, more)
    with logged():
        return _monitor_in_pod(*arguments, **more) if in_pod else _monitor_by_id(*arguments, **more)


def names_pod(arguments: Sequence[Any], more: Mapping[str, Any]) -> bool:
    """Whether arguments of ``monitor_job`` are those with a pod (empty for this machine) before the
    job."""
    return (
        "head_pod" in more
        or "namespace" in more
        or (len(arguments) == 1 and "job_id" in more)
        or (len(arguments) > 1 and isinstance(arguments[1], str))
    )


class _Asked(msgspec.Struct, frozen=True):
    """How to ask for the state of a job."""

    status: Callable[[], JobState]
    progress: Callable[[], JobProgress]
    stalled: Callable[[], bool]
    lost_seconds: float
    """Seconds for which a job may be UNKNOWN before it counts as ended."""


def _monitor_in_pod(
    head_pod: str,
    job_id: str,
    check_interval: float = 30,
    timeout: float | None = None,
    namespace: str = "default",
    stagnation_threshold: float = 300,
) -> MonitorResult:
    asked = _Asked(
        status=lambda: check_job_status(head_pod, job_id, namespace),
        progress=lambda: get_progress(head_pod, job_id, namespace),
        stalled=lambda: detect_stall(head_pod, job_id, stagnation_threshold, namespace),
        lost_seconds=_LOST_SECONDS,
    )
    return _monitored(job_id, asked, check_interval, timeout, SystemClock())


def _monitor_by_id(
    job_id: str,
    check_interval: float = 30,
    timeout: float | None = None,
    address: str = "",
    clock: Clock | None = None,
    stagnation_threshold: float = 300,
) -> MonitorResult:
    jobs = Jobs(address)

    def tail() -> JobLogTail:
        return JobLogTail(jobs.output(job_id).replace("\r", "\n"))

    asked = _Asked(
        status=lambda: jobs.status(job_id),
        progress=lambda: read_progress(tail().text),
        stalled=lambda: WATCH.stalled(
            (jobs.address, job_id), tail(), stagnation_threshold, time.time()
        ),
        lost_seconds=0.0,
    )
    return _monitored(job_id, asked, check_interval, timeout, clock or SystemClock())


def _monitored(
    job_id: str, asked: _Asked, check_interval: float, timeout: float | None, clock: Clock
) -> MonitorResult:
    began = known = clock.monotonic()
    before: JobState | None = None
    while True:
        status = asked.status()
        if status != before:
            log.info("job %s is %s", job_id, status)
        before = status
        now = clock.monotonic()
        spent = now - began
        known = now if status != "UNKNOWN" else known
        lost = status == "UNKNOWN" and now - known >= asked.lost_seconds
        timed_out = timeout is not None and spent >= timeout
        if status in _ENDED or timed_out or lost:
            break
        left = check_interval if timeout is None else min(check_interval, timeout - spent)
        clock.sleep(max(0.05, left))
    # Nothing is known of a job that is not there, and there is no output before it starts.
    unread = status == "PENDING" or (status == "UNKNOWN" and not asked.lost_seconds)
    progress = read_progress("") if unread else asked.progress()
    return MonitorResult(
        status=status,
        duration=round(clock.monotonic() - began, 3),
        final_step=progress["step"],
        stalled=timed_out and status == "RUNNING" and asked.stalled(),
        timed_out=timed_out and status not in _ENDED,
        tokens_per_second=progress["tokens_per_second"],
    )


def log_tail(shell: Shell, job_id: str) -> JobLogTail:
    """The end of the job's log: Ray's file of it, else what ``ray job logs`` prints."""
    try:
        path = f"{shell.logs}/job-driver-{job_id}.log"
        well, text = shell.ask("tail", "-c", str(_TAIL), path)
        if well:
            stamped, when = shell.ask("stat", "-L", "-c", "%Y", path)
            changed = float(when.strip()) if stamped and when.strip().isdigit() else None
            return JobLogTail(text, changed)
    except SentinelError:
        pass  # no session on this machine: the API of jobs still knows the log
    try:
        return JobLogTail(shell.run("ray", "job", "logs", job_id)[-_TAIL:])
    except SentinelError:
        return JobLogTail()

"""Jobs of ``ray job submit``, watched by their id: status, step, stall, end."""

from __future__ import annotations

import statistics
import time
from datetime import datetime, timezone

import msgspec

from ray_sentinel.clock import Clock, SystemClock
from ray_sentinel.errors import SentinelError
from ray_sentinel.evidence.logs.bare_steps import parse_any_step, surest
from ray_sentinel.evidence.logs.clocks import round_zone
from ray_sentinel.evidence.logs.lines import parse_line
from ray_sentinel.evidence.logs.steps import Step
from ray_sentinel.evidence.logs.times import parse_time
from ray_sentinel.evidence.node.ray_status import read_job_status
from ray_sentinel.model.ray_job import JobState
from ray_sentinel.monitor.shell import Shell
from ray_sentinel.monitor.types import JobProgress, MonitorResult

_TAIL = 512 * 1024
"""Bytes of a job's log in which its last steps are looked for."""
_ENDED = ("FAILED", "SUCCEEDED", "STOPPED")
_LOST_SECONDS = 300.0
"""Where Ray does not tell of a job for so long, it is not waited for any more."""
_LAST = 50
"""Steps whose figures make the throughput."""


class Tail(msgspec.Struct, frozen=True):
    """The end of a job's log. ``changed``: Unix seconds of its last write, where known."""

    text: str = ""
    changed: float | None = None


def check_job_status(head_pod: str, job_id: str, namespace: str = "default") -> JobState:
    """RUNNING, FAILED, SUCCEEDED, PENDING or STOPPED; UNKNOWN where Ray does not tell."""
    try:
        _, text = Shell(head_pod, namespace).ask("ray", "job", "status", job_id)
    except SentinelError:
        return "UNKNOWN"
    return read_job_status(text, job_id)


def get_current_step(head_pod: str, job_id: str, namespace: str = "default") -> int | None:
    """The last training step in the job's log; None where there is none yet."""
    return get_progress(head_pod, job_id, namespace)["step"]


def get_progress(head_pod: str, job_id: str, namespace: str = "default") -> JobProgress:
    """The last step, and the throughput of the last ones."""
    return read_progress(_tail(Shell(head_pod, namespace), job_id).text)


def read_progress(text: str) -> JobProgress:
    """The last step in a log's text, and the throughput of the last ones."""
    year = datetime.now(timezone.utc).year
    steps: list[tuple[Step, float | None]] = []
    when: float | None = None
    for raw in text.splitlines():
        line = parse_line(raw)
        when = parse_time(line.prefix + line.text, year) or when
        step = parse_any_step(line.text)
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


def _from_times(steps: list[tuple[Step, float | None]]) -> float | None:
    dated = [(step.step or 0, when) for step, when in steps if when is not None]
    if len(dated) < 2:
        return None
    made, took = dated[-1][0] - dated[0][0], dated[-1][1] - dated[0][1]
    return took / made if made > 0 and took > 0 else None


def _zone(tail: Tail) -> float:
    """By how much the log's own times are behind: they may be of any zone, and its last write,
    where that is known, was of its last line."""
    year = datetime.now(timezone.utc).year
    for raw in reversed(tail.text.splitlines()):
        if when := parse_time(raw, year):
            return round_zone(tail.changed - when) if tail.changed else 0.0
    return 0.0


class StallWatch:
    """Remembers when each job's step last changed, for logs whose lines bear no time."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._seen: dict[tuple[str, str], tuple[int | None, float]] = {}

    def forget(self, key: tuple[str, str]) -> None:
        """The job has ended."""
        self._seen.pop(key, None)

    def stalled(self, key: tuple[str, str], tail: Tail, threshold: float, now: float) -> bool:
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


_watch = StallWatch()


def detect_stall(
    head_pod: str, job_id: str, stagnation_threshold: float = 300, namespace: str = "default"
) -> bool:
    """Whether a RUNNING job makes no progress for ``stagnation_threshold`` seconds.

    Told by the times in its log, else by the log's last write, else by what earlier calls saw.
    """
    status = check_job_status(head_pod, job_id, namespace)
    if status in _ENDED:
        _watch.forget((head_pod, job_id))
    if status != "RUNNING":
        return False
    tail = _tail(Shell(head_pod, namespace), job_id)
    return _watch.stalled((head_pod, job_id), tail, stagnation_threshold, time.time())


def monitor_job(
    head_pod: str,
    job_id: str,
    check_interval: float = 30,
    timeout: float | None = None,
    namespace: str = "default",
    stagnation_threshold: float = 300,
) -> MonitorResult:
    """Watch a job until it ends, or for ``timeout`` seconds; one that Ray does not know for minutes
    is given up."""
    began = told = time.monotonic()
    while True:
        status = check_job_status(head_pod, job_id, namespace)
        now = time.monotonic()
        spent = now - began
        told = now if status != "UNKNOWN" else told
        timed_out = timeout is not None and spent >= timeout
        if status in _ENDED or timed_out or now - told >= _LOST_SECONDS:
            break
        left = check_interval if timeout is None else min(check_interval, timeout - spent)
        time.sleep(max(0.05, left))
    progress = get_progress(head_pod, job_id, namespace)
    return MonitorResult(
        status=status,
        duration=round(time.monotonic() - began, 3),
        final_step=progress["step"],
        stalled=timed_out
        and status == "RUNNING"
        and detect_stall(head_pod, job_id, stagnation_threshold, namespace),
        timed_out=timed_out and status not in _ENDED,
        tokens_per_second=progress["tokens_per_second"],
    )


def _tail(shell: Shell, job_id: str) -> Tail:
    """The end of the job's log: Ray's file of it, else what ``ray job logs`` prints."""
    try:
        path = f"{shell.logs}/job-driver-{job_id}.log"
        well, text = shell.ask("tail", "-c", str(_TAIL), path)
        if well:
            stamped, when = shell.ask("stat", "-L", "-c", "%Y", path)
            changed = float(when.strip()) if stamped and when.strip().isdigit() else None
            return Tail(text, changed)
    except SentinelError:
        pass  # no session on this machine: the API of jobs knows the log all the same
    try:
        return Tail(shell.run("ray", "job", "logs", job_id)[-_TAIL:])
    except SentinelError:
        return Tail()

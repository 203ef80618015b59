"""Progress and stalls read from a job's log."""

from __future__ import annotations

import pytest

from ray_sentinel.clock import FakeClock
from ray_sentinel.monitor import jobs
from ray_sentinel.monitor.jobs import StallWatch, Tail, read_progress
from ray_sentinel.monitor.shell import Shell

DATED = "\n".join(
    f"2026-05-01 10:00:{second:02d} INFO step: {second} loss: 2.5 tokens/s: 100"
    for second in range(1, 11)
)
DATED_END = 1777629610.0
PLAIN = "step: 7 loss: 2.5"


def test_progress() -> None:
    told = read_progress(DATED)
    assert told["step"] == 10
    assert told["step_seconds"] == 1.0
    assert told["tokens_per_second"] == 100
    assert told["loss"] == 2.5
    assert read_progress("")["step"] is None


def test_a_stall_by_the_logs_own_times() -> None:
    watch = StallWatch(FakeClock())
    key = ("", "job")
    assert not watch.stalled(key, Tail(DATED), 300, now=DATED_END + 100)
    assert watch.stalled(key, Tail(DATED), 300, now=DATED_END + 301)


def test_a_stall_by_the_files_last_write() -> None:
    watch = StallWatch(FakeClock())
    assert not watch.stalled(("", "a"), Tail(PLAIN, 1000.0), 300, now=1100.0)
    assert watch.stalled(("", "a"), Tail(PLAIN, 1000.0), 300, now=1301.0)


def test_a_stall_by_what_earlier_calls_saw() -> None:
    clock = FakeClock()
    watch = StallWatch(clock)
    # The log goes on, the step does not.
    assert not watch.stalled(("", "a"), Tail(PLAIN + "\nwaiting 1", 1000.0), 300, now=1000.0)
    clock.sleep(301.0)
    assert watch.stalled(("", "a"), Tail(PLAIN + "\nwaiting 2", 1301.0), 300, now=1301.0)
    assert not watch.stalled(("", "a"), Tail("step: 8 loss: 2", 1302.0), 300, now=1302.0)


def test_jobs_that_have_ended_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    states = {"a": "RUNNING", "b": "RUNNING"}
    watch = StallWatch(FakeClock())
    monkeypatch.setattr(jobs, "_watch", watch)
    monkeypatch.setattr(jobs, "check_job_status", lambda pod, job, namespace: states[job])
    monkeypatch.setattr(jobs, "_tail", lambda shell, job: Tail(PLAIN))
    assert not jobs.detect_stall("head", "a")
    assert not jobs.detect_stall("head", "b")
    states["a"] = "SUCCEEDED"
    assert not jobs.detect_stall("head", "a")
    states["b"] = "UNKNOWN"
    assert not jobs.detect_stall("head", "b")
    assert list(watch._seen) == [("head", "b")]


def test_a_pod_is_reached_by_kubectl() -> None:
    assert Shell("head", "ns").command(("ray", "status")) == [
        *("kubectl", "exec", "-n", "ns", "head", "--", "ray", "status")
    ]

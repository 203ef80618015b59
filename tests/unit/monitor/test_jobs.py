"""Progress and stalls read from a job's log."""

from __future__ import annotations

import pytest

from ray_sentinel.clock import FakeClock
from ray_sentinel.monitor import jobs
from ray_sentinel.monitor.jobs import JobLogTail, StallWatch, read_progress
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
    split = "".join(f"=== Step {n}/9 ===\n• Total step time: 61.50s\n" for n in (3, 4))
    told = read_progress(split)
    assert (told["step"], told["total_steps"], told["step_seconds"]) == (4, 9, 61.5)


def test_a_stall_by_the_logs_own_times() -> None:
    watch = StallWatch(FakeClock())
    key = ("", "job")
    assert not watch.stalled(key, JobLogTail(DATED), 300, now=DATED_END + 100)
    assert watch.stalled(key, JobLogTail(DATED), 300, now=DATED_END + 301)


def test_a_stall_by_the_files_last_write() -> None:
    watch = StallWatch(FakeClock())
    assert not watch.stalled(("", "a"), JobLogTail(PLAIN, 1000.0), 300, now=1100.0)
    assert watch.stalled(("", "a"), JobLogTail(PLAIN, 1000.0), 300, now=1301.0)


def test_a_stall_by_what_earlier_calls_saw() -> None:
    clock = FakeClock()
    watch = StallWatch(clock)
    # The log goes on, the step does not.
    assert not watch.stalled(("", "a"), JobLogTail(PLAIN + "\nwaiting 1", 1000.0), 300, now=1000.0)
    clock.sleep(301.0)
    assert watch.stalled(("", "a"), JobLogTail(PLAIN + "\nwaiting 2", 1301.0), 300, now=1301.0)
    assert not watch.stalled(("", "a"), JobLogTail("step: 8 loss: 2", 1302.0), 300, now=1302.0)


@pytest.mark.parametrize("zone", [-8, -5.5, 0, 9])
def test_a_logs_own_times_may_be_of_another_zone(zone: float) -> None:
    """Its last write tells which; what goes on without steps is a stall all the same."""
    watch, end = StallWatch(FakeClock()), DATED_END - zone * 3600
    assert not watch.stalled(("", "a"), JobLogTail(DATED, end + 2), 300, now=end + 100)
    later = DATED + "\n2026-05-01 10:05:20 INFO waiting for data"
    assert watch.stalled(("", "b"), JobLogTail(later, end + 312), 300, now=end + 315)


def test_a_job_that_ray_does_not_know_is_not_watched_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = FakeClock()
    monkeypatch.setattr(jobs, "SystemClock", lambda: clock)
    monkeypatch.setattr(jobs, "check_job_status", lambda pod, job, namespace: "UNKNOWN")
    monkeypatch.setattr(jobs, "log_tail", lambda shell, job: JobLogTail())
    told = jobs.monitor_job("head", "a")
    assert (told["status"], told["timed_out"]) == ("UNKNOWN", False)
    assert 300 <= clock.monotonic() < 400


def test_jobs_that_have_ended_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    states = {"a": "RUNNING", "b": "RUNNING"}
    clock = FakeClock()
    monkeypatch.setattr(jobs, "WATCH", StallWatch(clock))
    monkeypatch.setattr(jobs, "check_job_status", lambda pod, job, namespace: states[job])
    monkeypatch.setattr(jobs, "log_tail", lambda shell, job: JobLogTail(PLAIN))
    assert not jobs.detect_stall("head", "a")
    assert not jobs.detect_stall("head", "b")
    states["a"] = "SUCCEEDED"
    assert not jobs.detect_stall("head", "a")
    states["b"] = "UNKNOWN"
    assert not jobs.detect_stall("head", "b")
    clock.advance(301.0)
    states.update(a="RUNNING", b="RUNNING")
    assert not jobs.detect_stall("head", "a"), "nothing is known of its step"
    assert jobs.detect_stall("head", "b"), "its step is as it was"


def test_a_pod_is_reached_by_kubectl() -> None:
    assert Shell("head", "ns").command(("ray", "status")) == [
        *("kubectl", "exec", "-n", "ns", "head", "--", "ray", "status")
    ]

"""A capture after a fixed time."""

from __future__ import annotations

import msgspec

from ray_sentinel.actors.coordinator.gathering.timed_capture import WHY, TimedCapture
from ray_sentinel.model.status import JobStatus
from tests.support.incidents import an_incident

JOB = JobStatus(job="j", attempt=0, step=None, phase="train", step_age_seconds=0.0)


def test_each_attempt_of_a_job_is_due_once() -> None:
    timed = TimedCapture(600.0)
    assert timed.wanted
    assert timed.due([JOB], [], 1000.0) == []
    assert timed.due([JOB], [], 1599.0) == []
    assert timed.due([JOB], [], 1600.0) == ["j"]
    assert timed.due([JOB], [], 1700.0) == []
    second = msgspec.structs.replace(JOB, attempt=1)
    assert timed.due([JOB, second], [], 1800.0) == []
    assert timed.due([JOB, second], [], 2400.0) == ["j"]


def test_a_job_that_has_ended_is_not_captured() -> None:
    timed = TimedCapture(10.0)
    timed.due([JOB], [], 0.0)
    assert timed.due([msgspec.structs.replace(JOB, ended=True)], [], 20.0) == []


def test_a_successor_does_not_capture_again() -> None:
    done = an_incident(
        kind="asked", severity="info", rule="user.dump", state="explained", summary=f"j: {WHY}"
    )
    timed = TimedCapture(10.0)
    timed.due([JOB], [done], 0.0)
    assert timed.due([JOB], [done], 20.0) == []


def test_jobs_that_are_gone_are_forgotten() -> None:
    timed = TimedCapture(10.0)
    for number in range(100):
        job = msgspec.structs.replace(JOB, job=f"j{number}")
        timed.due([job], [], 100.0 * number)
        assert timed.due([job], [], 100.0 * number + 20.0) == [job.job]
        assert timed.due([job], [], 100.0 * number + 30.0) == []
    assert (len(timed.seen), len(timed.done)) == (1, 1)


def test_it_is_off_by_default() -> None:
    assert not TimedCapture(0.0).wanted

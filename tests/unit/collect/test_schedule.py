"""The schedule of one collector's process, turned by hand."""

from __future__ import annotations

import pytest

from ray_sentinel.clock import FakeClock
from ray_sentinel.collect.schedule import (
    ANSWER_GRACE,
    DEATH_BACKOFF,
    KILL_GRACE,
    MAX_BACKOFF,
    Schedule,
    ScheduleStep,
    Timing,
)

TIMING = Timing(interval=10.0, deadline=5.0, start_deadline=30.0)


class Process:
    """A schedule with a clock, and the usual ways to go through it."""

    def __init__(self, unkillable: int = 0) -> None:
        self.clock = FakeClock()
        self.schedule = Schedule(self.clock.monotonic(), TIMING, unkillable)

    @property
    def now(self) -> float:
        return self.clock.monotonic()

    def step(self) -> ScheduleStep | None:
        return self.schedule.step(self.now)

    def wait(self, seconds: float) -> ScheduleStep | None:
        self.clock.advance(seconds)
        return self.step()

    def start(self) -> None:
        assert self.step() is ScheduleStep.SPAWN
        self.schedule.spawned(self.now)
        self.schedule.hello(self.now, TIMING)

    def ask(self) -> None:
        assert self.step() is ScheduleStep.ASK
        self.schedule.asked(self.now)

    def end(self) -> None:
        """Killed, and gone at the first look."""
        while self.step() is not ScheduleStep.CHECK:
            self.clock.advance(0.01)
        self.schedule.ended(self.now)

    def next_spawn(self) -> float:
        """Seconds until it is started again."""
        begin = self.now
        while self.step() is not ScheduleStep.SPAWN:
            assert self.schedule.at is not None
            self.clock.advance(max(0.001, self.schedule.at - self.now))
        return self.now - begin


@pytest.fixture
def process() -> Process:
    return Process()


def test_is_asked_at_once_and_then_once_an_interval(process: Process) -> None:
    process.start()
    process.ask()
    assert process.wait(0.1) is None
    process.schedule.answered(process.now, "ok")
    assert process.schedule.state == "running"
    assert process.wait(9.8) is None
    assert process.wait(0.2) is ScheduleStep.ASK


def test_has_one_question_in_flight(process: Process) -> None:
    process.start()
    process.ask()
    for _ in range(49):
        assert process.wait(0.1) is None


def test_runs_that_were_missed_are_not_made_up_for(process: Process) -> None:
    process.start()
    process.ask()
    process.clock.advance(4.9)
    process.schedule.answered(process.now, "ok")
    process.clock.advance(31.0)
    process.ask()
    process.schedule.answered(process.now, "ok")
    assert process.step() is None
    assert process.schedule.at == 40.0


@pytest.mark.parametrize("outcome", ["ok", "nodata", "error"])
def test_an_answer_in_time_is_no_failure_of_the_process(process: Process, outcome: str) -> None:
    process.start()
    process.ask()
    process.schedule.answered(process.now, outcome)  # type: ignore[arg-type]
    assert process.schedule.state == "running"
    assert process.schedule.failures == 0


def test_missed_deadline_is_killed_quarantined_and_recovers(process: Process) -> None:
    process.start()
    process.ask()
    assert process.wait(TIMING.deadline) is None  # its own timer comes first
    assert process.wait(ANSWER_GRACE) is ScheduleStep.KILL
    assert process.schedule.timeouts == 1
    assert process.schedule.state == "quarantined"
    assert "deadline of 5 s" in process.schedule.message
    process.end()
    assert process.next_spawn() == pytest.approx(10.0, abs=0.1)
    process.schedule.spawned(process.now)
    process.schedule.hello(process.now, TIMING)
    assert process.schedule.state == "quarantined"  # on probation
    process.ask()
    process.schedule.answered(process.now, "ok")
    assert process.schedule.state == "running"
    assert process.schedule.message == ""
    assert process.schedule.restarts == 1


def test_backoff_doubles_up_to_a_limit_and_starts_anew_after_an_answer(process: Process) -> None:
    waits = []
    for _ in range(8):
        process.start()
        process.ask()
        assert process.wait(TIMING.deadline + ANSWER_GRACE) is ScheduleStep.KILL
        process.end()
        waits.append(round(process.next_spawn()))
    assert waits[:5] == [10, 20, 40, 80, 160]
    assert waits[5:] == [MAX_BACKOFF] * 3
    process.start()
    process.ask()
    process.schedule.answered(process.now, "ok")
    process.clock.advance(10.0)
    process.ask()
    assert process.wait(TIMING.deadline + ANSWER_GRACE) is ScheduleStep.KILL
    process.end()
    assert round(process.next_spawn()) == 10


def test_ending_after_the_deadline_is_a_missed_deadline_and_says_where(process: Process) -> None:
    process.start()
    process.ask()
    process.clock.advance(TIMING.deadline + 0.1)
    assert process.schedule.closed(process.now, "", " in statvfs (host.py:9)") is ScheduleStep.KILL
    assert process.schedule.timeouts == 1
    assert process.schedule.message.endswith("in statvfs (host.py:9)")


def test_a_death_is_followed_by_a_short_backoff_and_says_how(process: Process) -> None:
    process.start()
    assert process.schedule.closed(process.now) is ScheduleStep.KILL
    process.clock.advance(0.02)
    assert process.step() is ScheduleStep.CHECK
    process.schedule.ended(process.now, "its process was killed by signal 9")
    assert process.schedule.timeouts == 0
    assert process.schedule.message == "its process was killed by signal 9"
    assert process.next_spawn() == pytest.approx(DEATH_BACKOFF, abs=0.1)


def test_a_start_that_takes_too_long_is_killed(process: Process) -> None:
    assert process.step() is ScheduleStep.SPAWN
    process.schedule.spawned(process.now)
    assert process.wait(29.0) is None
    assert process.wait(1.0) is ScheduleStep.KILL
    assert "did not start within 30 s" in process.schedule.message


def test_an_error_instead_of_a_hello_is_retried_with_backoff(process: Process) -> None:
    assert process.step() is ScheduleStep.SPAWN
    process.schedule.spawned(process.now)
    assert process.schedule.answered(process.now, "error", "ImportError: x") is ScheduleStep.KILL
    process.end()
    assert process.schedule.state == "quarantined"
    assert process.schedule.message == "ImportError: x"
    assert process.next_spawn() == pytest.approx(10.0, abs=0.1)


@pytest.mark.parametrize("made", [True, False])
def test_skip_is_for_good(process: Process, made: bool) -> None:
    assert process.step() is ScheduleStep.SPAWN
    process.schedule.spawned(process.now)
    if made:
        process.schedule.hello(process.now, TIMING)
        process.ask()
    assert process.schedule.answered(process.now, "skip", "no GPU") is ScheduleStep.KILL
    process.end()
    assert process.schedule.state == "skipped"
    assert process.schedule.message == "no GPU"
    assert process.schedule.at is None
    assert process.wait(1e6) is None


def test_what_cannot_be_killed_is_counted_and_not_added_to(process: Process) -> None:
    process.start()
    process.ask()
    assert process.wait(TIMING.deadline + ANSWER_GRACE) is ScheduleStep.KILL
    waited = 0.0
    while process.schedule.state != "stuck":
        process.clock.advance(0.05)
        waited += 0.05
        if process.step() is ScheduleStep.CHECK:
            process.schedule.still_alive(process.now, 1)
    assert waited == pytest.approx(KILL_GRACE, abs=0.2)
    assert process.schedule.unkillable == 1
    for _ in range(1000):
        assert process.wait(10.0) in (ScheduleStep.CHECK, None)
        process.schedule.still_alive(process.now, 1)
    process.schedule.ended(process.now)
    assert process.schedule.unkillable == 0
    assert process.step() is ScheduleStep.SPAWN


def test_what_an_earlier_life_left_stuck_comes_first() -> None:
    process = Process(unkillable=2)
    assert process.schedule.state == "stuck"
    assert process.step() is ScheduleStep.CHECK
    process.schedule.still_alive(process.now, 2)
    assert process.wait(1.0) is None
    assert process.wait(1.0) is ScheduleStep.CHECK
    process.schedule.ended(process.now)
    assert process.step() is ScheduleStep.SPAWN
    process.schedule.spawned(process.now)
    assert process.schedule.restarts == 0


def test_its_own_programs_timeout_counts_without_killing_the_process(process: Process) -> None:
    process.start()
    process.ask()
    assert process.schedule.answered(process.now, "timeout", "slow.sh was ended") is None
    assert process.schedule.timeouts == 1
    assert process.schedule.state == "quarantined"
    assert process.wait(9.9) is None
    assert process.wait(0.2) is ScheduleStep.ASK


def test_a_pause_puts_the_next_question_off_this_once(process: Process) -> None:
    process.start()
    process.ask()
    process.schedule.answered(process.now, "ok", pause=25.0)
    assert process.wait(24.9) is None
    assert process.wait(0.2) is ScheduleStep.ASK
    process.schedule.asked(process.now)
    process.schedule.answered(process.now, "ok")
    assert process.wait(TIMING.interval) is ScheduleStep.ASK


def test_a_pause_shorter_than_the_interval_changes_nothing(process: Process) -> None:
    process.start()
    process.ask()
    process.schedule.answered(process.now, "ok", pause=3.0)
    assert process.wait(9.8) is None
    assert process.wait(0.2) is ScheduleStep.ASK

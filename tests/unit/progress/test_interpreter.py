"""Who holds the GIL, from the stamps of a companion and the state of its threads."""

import pytest

from ray_sentinel.progress.proc.interpreter import (
    HELD_SECONDS,
    Scheduling,
    ThreadSample,
    interpreter_state,
    not_waited,
    waited,
)


def sample(at=10.0, state="S", wchan="futex_wait", delay=0.0, switches=100) -> ThreadSample:
    return ThreadSample(at=at, state=state, wchan=wchan, delay_seconds=delay, switches=switches)


BEFORE = sample(at=9.0, wchan="hrtimer_nanosleep", delay=0.0, switches=0)
QUIET = Scheduling(waited_share=0.01, cpu_share=0.0)
LONG = HELD_SECONDS


def test_a_fresh_stamp_needs_no_look():
    assert interpreter_state(0.4, "S", None) == "runs"
    assert interpreter_state(1.4, "R", None) == "runs"


def test_without_a_stamp_nothing_is_known():
    assert interpreter_state(None, "S", sample()) == "unknown"


@pytest.mark.parametrize("state", ["T", "t", "Z", "X", "T (stopped)"])
def test_a_stopped_process_tells_nothing_of_its_interpreter(state):
    assert interpreter_state(60.0, state, sample(), BEFORE, QUIET) == "unknown"


def test_a_frozen_process_tells_nothing():
    assert interpreter_state(60.0, "D", sample(), BEFORE, QUIET, frozen=True) == "unknown"


def test_a_stamp_from_the_future_tells_nothing():
    assert interpreter_state(-5.0, "S", sample()) == "unknown"


@pytest.mark.parametrize("wchan", ["futex_wait", "futex_wait_queue", "futex_wait_queue_me"])
@pytest.mark.parametrize("before", [None, BEFORE])
def test_waiting_in_a_futex_is_waiting_for_the_lock(wchan, before):
    assert interpreter_state(3.0, "S", sample(wchan=wchan), before, counted=LONG) == "gil-held"


def test_a_lock_is_held_once_it_was_kept_for_long_enough_by_threads_that_had_a_cpu():
    kept = {"runs": 200}
    assert interpreter_state(9.0, "R", sample(), BEFORE, QUIET, **kept) == "unknown"
    assert interpreter_state(9.0, "R", sample(), BEFORE, QUIET, **kept, counted=0.8) == "unknown"
    assert interpreter_state(9.0, "R", sample(), BEFORE, QUIET, **kept, counted=1.0) == "gil-held"


def test_a_companion_that_has_just_come_from_its_sleep_has_not_asked_yet():
    assert interpreter_state(3.0, "R", sample(), BEFORE, QUIET, runs=2, counted=2.0) == "unknown"
    assert interpreter_state(3.0, "R", sample(), BEFORE, QUIET, runs=3, counted=2.0) == "gil-held"


def test_a_spinner_in_c_with_a_cpu_of_its_own():
    scheduling = Scheduling(waited_share=0.02, cpu_share=0.98)
    said = interpreter_state(3.0, "R", sample(), BEFORE, scheduling, runs=200, counted=LONG)
    assert said == "gil-held"


def test_a_spinner_in_c_on_a_crowded_machine_still_holds_the_lock():
    scheduling = Scheduling(waited_share=0.85, cpu_share=0.15)
    companion = sample(state="R", wchan="", delay=0.9, switches=4)
    said = interpreter_state(9.0, "R", companion, BEFORE, scheduling, runs=12, counted=LONG)
    assert said == "gil-held"


def test_a_sleeper_in_c_on_a_crowded_machine_still_holds_the_lock():
    companion = sample(delay=0.9, switches=4)
    said = interpreter_state(3.0, "S", companion, BEFORE, QUIET, runs=4, counted=LONG)
    assert said == "gil-held"


def test_a_holder_without_a_cpu_is_starved():
    scheduling = Scheduling(waited_share=0.98, cpu_share=0.005)
    assert interpreter_state(3.0, "R", sample(), BEFORE, scheduling, runs=9) == "starved"


def test_a_companion_without_a_cpu_is_starved():
    companion = sample(state="R", wchan="", delay=0.97, switches=1)
    assert interpreter_state(3.0, "R", companion, BEFORE, QUIET, runs=1) == "starved"
    # At first sight it cannot be told from a waiter between two waits.
    assert interpreter_state(3.0, "R", companion) == "unknown"


def test_a_thread_that_waits_all_the_time_has_nothing_on_its_account():
    before = sample(at=8.0, state="R", wchan="")
    now = sample(at=10.0, state="R", wchan="")
    assert waited(now, before) == 2.0
    assert interpreter_state(3.0, "R", now, before, QUIET, runs=0) == "starved"
    assert waited(sample(at=10.0, state="R", delay=0.3), before) == 2.0
    assert waited(sample(at=10.0, state="S", delay=0.3), before) == pytest.approx(0.3)


def test_a_thread_that_has_a_cpu_all_the_time_does_not_wait():
    before = ThreadSample(at=8.0, state="R", cpu_seconds=5.0, delay_seconds=1.0, switches=7)
    now = ThreadSample(at=10.0, state="R", cpu_seconds=7.0, delay_seconds=1.0, switches=7)
    assert waited(now, before) == 0.0
    assert not_waited(now, before) == 2.0


def test_of_a_thread_that_is_runnable_only_what_it_ran_is_sure():
    before = ThreadSample(at=8.0, state="S", cpu_seconds=5.0, delay_seconds=1.0, switches=7)
    now = ThreadSample(at=10.0, state="R", cpu_seconds=5.2, delay_seconds=1.0, switches=8)
    assert not_waited(now, before) == pytest.approx(0.2)
    # Its wait is over, and on its account: for the rest, it ran or slept.
    rests = ThreadSample(at=10.0, state="S", cpu_seconds=5.2, delay_seconds=1.5, switches=9)
    assert not_waited(rests, before) == pytest.approx(1.5)
    unknown = ThreadSample(at=10.0, state="S", cpu_seconds=5.2)
    assert not_waited(unknown, before) == 2.0


def test_a_companion_still_asleep_has_no_fault():
    companion = sample(wchan="hrtimer_nanosleep", switches=1)
    assert interpreter_state(3.0, "S", companion, BEFORE, QUIET, runs=1) == "unknown"


def test_a_companion_that_ended_tells_nothing():
    assert interpreter_state(3.0, "S", None, BEFORE, QUIET) == "unknown"


def test_where_wchan_is_hidden_a_busy_waiter_gives_itself_away():
    hidden = sample(wchan="")
    said = interpreter_state(3.0, "S", hidden, BEFORE, QUIET, runs=200, counted=LONG)
    assert said == "gil-held"
    assert interpreter_state(3.0, "S", hidden, counted=LONG) == "unknown"
    assert interpreter_state(3.0, "S", hidden, BEFORE, QUIET, runs=1, counted=LONG) == "unknown"


def test_caught_between_two_waits():
    now = sample(state="R", wchan="exit_to_user_mode_loop")
    said = interpreter_state(3.0, "S", now, BEFORE, QUIET, runs=200, counted=LONG)
    assert said == "gil-held"


def test_without_schedstat_two_looks_decide():
    def bare(at: float, state: str, wchan: str = "") -> ThreadSample:
        return ThreadSample(at=at, state=state, wchan=wchan)

    assert interpreter_state(3.0, "R", bare(10, "R"), bare(9, "R")) == "starved"
    assert interpreter_state(3.0, "R", bare(10, "R"), bare(9, "S")) == "unknown"
    waits = bare(10, "S", "futex_wait")
    assert interpreter_state(3.0, "S", waits, bare(9, "S"), counted=LONG) == "gil-held"

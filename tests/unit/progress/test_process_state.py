"""The state of a rank, from what the kernel tells of its process and threads."""

from pathlib import Path

import pytest

from ray_sentinel.progress.proc.process_state import StateReader
from tests.support.proc_tree import ProcTree


@pytest.fixture
def tree(tmp_path: Path) -> ProcTree:
    return ProcTree(tmp_path / "proc")


def test_a_healthy_rank(tree):
    tree.process(100, 1, "python", cpu=2.0, switches=50, wchan="poll_schedule_timeout")
    reading = StateReader(tree.root).read((100, 1000), 10.0)
    state = reading.state
    assert (state.state, state.wchan, state.main_switches) == ("S", "poll_schedule_timeout", 50)
    assert state.main_cpu_seconds == pytest.approx(2.0)
    assert (state.threads, state.io_bytes, state.tracer_pid) == (1, 120, 0)
    assert state.rss_bytes > 0
    assert state.interpreter == "unknown"
    assert reading.quiet_seconds == 0.0


def test_how_often_the_training_thread_went_to_sleep_by_itself(tree):
    folder = tree.process(100, 1, "python")
    status = folder / "task" / "100" / "status"
    status.write_text("Name:\tx\nvoluntary_ctxt_switches:\t42\nnonvoluntary_ctxt_switches:\t7\n")
    reader = StateReader(tree.root)
    assert reader.read((100, 1000), 10.0).state.main_sleeps == 42
    status.write_text("voluntary_ctxt_switches:\tmany\n")
    assert reader.read((100, 1000), 11.0).state.main_sleeps == 0


def test_gone_or_another_process(tree):
    reader = StateReader(tree.root)
    assert reader.read((100, 1000), 10.0) is None
    tree.process(100, 1, "python", start=7)
    assert reader.read((100, 1000), 10.0) is None


def test_quiet_counts_from_the_last_move_that_was_seen(tree):
    reader = StateReader(tree.root)
    tree.process(100, 1, "python", switches=50)
    assert reader.read((100, 1000), 10.0).quiet_seconds == 0
    assert reader.read((100, 1000), 13.0).quiet_seconds == 3.0
    tree.process(100, 1, "python", switches=51)
    assert reader.read((100, 1000), 14.0).quiet_seconds == 0
    assert reader.read((100, 1000), 15.0).quiet_seconds == 1.0


def test_the_thread_that_steps_is_the_one_that_counts(tree):
    reader = StateReader(tree.root)
    tree.process(100, 1, "python", switches=50)
    for now in range(10, 15):
        tree.thread(100, 105, switches=now, cpu=now / 10)
        reading = reader.read((100, 1000), float(now), stepping_tid=105)
        assert reading.quiet_seconds == 0
    assert reading.state.main_switches == 14


def test_a_stopped_rank_and_its_tracer(tree):
    folder = tree.process(100, 1, "python", state="t")
    (folder / "status").write_text("Name:\tpython\nTracerPid:\t77\n")
    assert StateReader(tree.root).read((100, 1000), 10.0).state.tracer_pid == 77


def test_the_lock_is_held(tree):
    reader = StateReader(tree.root)
    tree.process(100, 1, "python")
    tree.thread(100, 101, wchan="hrtimer_nanosleep")
    read = {"companion_tid": 101, "stamp": 9.9}
    assert reader.read((100, 1000), 10.0, **read).state.interpreter == "runs"
    tree.thread(100, 101, wchan="futex_wait", switches=300)
    assert reader.read((100, 1000), 12.0, **read).state.interpreter == "gil-held"


def test_starved(tree):
    reader = StateReader(tree.root)
    tree.process(100, 1, "python", state="R", delay=1.0)
    tree.thread(100, 101, delay=1.0)
    read = {"companion_tid": 101, "stamp": 9.9}
    reader.read((100, 1000), 10.0, **read)
    tree.process(100, 1, "python", state="R", delay=2.9)
    tree.thread(100, 101, state="R", delay=2.9, switches=11)
    assert reader.read((100, 1000), 12.0, **read).state.interpreter == "starved"


def test_a_process_that_loses_its_cpu_between_two_looks_does_not_hold_the_lock(tree):
    reader = StateReader(tree.root)
    read = {"companion_tid": 101, "stamp": 10.0}
    # It spun until 10.4, and has had no CPU since; the companion was due at 10.5.
    tree.process(100, 1, "python", state="R", cpu=5.1, delay=1.0)
    tree.thread(100, 101, wchan="hrtimer_nanosleep", delay=0.1)
    reader.read((100, 1000), 10.1, **read)
    tree.process(100, 1, "python", state="R", cpu=5.4, delay=2.6)
    tree.thread(100, 101, wchan="futex_wait", delay=0.2, switches=20)
    assert reader.read((100, 1000), 12.1, **read).state.interpreter == "unknown"
    tree.process(100, 1, "python", state="R", cpu=5.4, delay=3.6)
    assert reader.read((100, 1000), 13.1, **read).state.interpreter == "starved"


def test_nor_does_one_that_loses_it_just_after_its_companion_was_late(tree):
    reader = StateReader(tree.root)
    read = {"companion_tid": 101, "stamp": 10.0}
    # The machine is crowded: the companion, due at 10.5, still waits for a CPU at 10.6, while the
    # process spins in Python; from 11.0 on its control group is given no CPU any more.
    tree.process(100, 1, "python", state="R", cpu=5.0, delay=1.0)
    tree.thread(100, 101, state="R", delay=0.1, switches=20)
    assert reader.read((100, 1000), 10.6, **read).state.interpreter == "runs"
    tree.process(100, 1, "python", state="R", cpu=5.4, delay=2.0)
    tree.thread(100, 101, wchan="futex_wait", delay=0.5, switches=24)
    assert reader.read((100, 1000), 12.0, **read).state.interpreter == "unknown"
    tree.process(100, 1, "python", state="R", cpu=5.401, delay=3.0)
    tree.thread(100, 101, wchan="futex_wait", delay=0.6, switches=26)
    assert reader.read((100, 1000), 13.0, **read).state.interpreter == "starved"


def test_nor_does_one_whose_wait_is_not_on_its_account_yet(tree):
    reader = StateReader(tree.root)
    read = {"companion_tid": 101, "stamp": 10.0}
    # As above, but nothing ended the process's wait for a CPU until 12.0: it was put on one at
    # 10.9 for the last time.
    tree.process(100, 1, "python", state="R", cpu=5.0, delay=1.0, switches=70)
    tree.thread(100, 101, state="R", delay=0.1, switches=20)
    reader.read((100, 1000), 10.6, **read)
    tree.process(100, 1, "python", state="R", cpu=5.2, delay=1.1, switches=74)
    tree.thread(100, 101, wchan="futex_wait", delay=0.5, switches=24)
    assert reader.read((100, 1000), 12.0, **read).state.interpreter == "unknown"
    tree.process(100, 1, "python", state="R", cpu=5.201, delay=3.0, switches=75)
    tree.thread(100, 101, wchan="futex_wait", delay=0.6, switches=26)
    assert reader.read((100, 1000), 13.0, **read).state.interpreter == "starved"


def test_a_lock_that_was_seen_held_stays_so_though_its_holder_waits_for_a_cpu_now_and_then(tree):
    reader = StateReader(tree.root)
    read = {"companion_tid": 101, "stamp": 10.0}
    tree.process(100, 1, "python", state="R", cpu=5.0, delay=1.0, switches=70)
    tree.thread(100, 101, wchan="hrtimer_nanosleep", switches=20)
    reader.read((100, 1000), 10.6, **read)
    tree.process(100, 1, "python", state="R", cpu=5.6, delay=1.0, switches=71)
    reader.read((100, 1000), 11.2, **read)
    tree.process(100, 1, "python", state="R", cpu=5.95, delay=1.05, switches=74)
    tree.thread(100, 101, wchan="futex_wait", switches=200)
    assert reader.read((100, 1000), 11.6, **read).state.interpreter == "gil-held"
    tree.process(100, 1, "python", state="R", cpu=6.0, delay=1.3, switches=78)
    tree.thread(100, 101, wchan="futex_wait", switches=280)
    assert reader.read((100, 1000), 12.1, **read).state.interpreter == "gil-held"
    # A new stamp: it was given back, and what was proven is over.
    read["stamp"] = 12.2
    assert reader.read((100, 1000), 12.3, **read).state.interpreter == "runs"


def crowded_import(tree: ProcTree, share: float, seconds: int) -> list[str]:
    """What is said of a busy main thread that gets this share of a CPU, at a look each second,
    while its companion asks for the lock in vain."""
    reader = StateReader(tree.root)
    said = []
    for number in range(seconds):
        ran = number * share
        tree.process(
            100, 1, "python", state="R", cpu=5.0 + ran, delay=number - ran, switches=50 + number
        )
        tree.thread(100, 101, wchan="futex_wait", switches=20 + number * 10, delay=number * 0.9)
        look = reader.read((100, 1000), 10.6 + number, companion_tid=101, stamp=10.0)
        said.append(look.state.interpreter)
    return said


def test_an_import_on_a_crowded_machine_holds_its_lock_for_long_and_proves_nothing(tree):
    # As seen with 24 busy threads on two CPUs: a third of a second of C code takes five.
    assert crowded_import(tree, 0.08, 10) == ["runs", *["unknown"] * 9]


def test_a_spinner_in_c_on_a_crowded_machine_is_seen_once_it_ran_for_a_second(tree):
    assert crowded_import(tree, 0.2, 8) == ["runs", *["unknown"] * 4, *["gil-held"] * 3]


def test_one_thread_that_waits_for_a_cpu_may_be_the_holder(tree):
    reader = StateReader(tree.root)
    said = []
    for number in range(6):
        # The main thread sleeps, as in a call; another wants to run and hardly can.
        ran = number * 0.05
        tree.process(100, 1, "python", cpu=5.0 + ran, switches=50)
        tree.thread(100, 103, state="R", cpu=ran, delay=number - ran, switches=30 + number)
        tree.thread(100, 101, wchan="futex_wait", switches=20 + number * 10)
        look = reader.read((100, 1000), 11.6 + number, companion_tid=101, stamp=10.0)
        said.append(look.state.interpreter)
    assert said == ["unknown"] * 6


def test_looks_in_quick_succession_count_as_much_as_seldom_ones(tree):
    reader = StateReader(tree.root)
    tree.thread(100, 101, wchan="futex_wait", switches=300)
    first = None
    for number in range(200):
        # It spins in C, and shares its CPU with four others: 0.2 s on, 0.8 s off.
        at = 10.0 + number * 0.05
        ran = int(at) * 0.2 + min(at % 1.0, 0.2)
        tree.process(100, 1, "python", state="R", cpu=ran, delay=at - ran)
        tree.thread(100, 101, wchan="futex_wait", switches=300 + number * 10)
        look = reader.read((100, 1000), at, companion_tid=101, stamp=8.0)
        assert look.state.interpreter != "starved", at
        if first is None and look.state.interpreter == "gil-held":
            first = at
        assert (look.state.interpreter == "gil-held") is (first is not None), at
    assert first is not None
    assert 14.0 < first < 15.5


def test_frozen_by_the_function_that_it_waits_in(tree):
    tree.process(100, 1, "python", state="D", wchan="__refrigerator")
    assert StateReader(tree.root).read((100, 1000), 10.0).state.frozen


def test_the_forgotten_begin_anew(tree):
    reader = StateReader(tree.root)
    tree.process(100, 1, "python")
    reader.read((100, 1000), 10.0)
    reader.forget(set())
    assert reader.read((100, 1000), 20.0).quiet_seconds == 0


def test_missing_and_broken_files_cost_only_what_they_hold(tree):
    folder = tree.process(100, 1, "python", cpu=2.0)
    (folder / "io").unlink()
    (folder / "task/100/schedstat").write_text("rubbish")
    (folder / "task/100/wchan").unlink()
    state = StateReader(tree.root).read((100, 1000), 10.0).state
    assert (state.io_bytes, state.wchan, state.main_switches) == (0, "", 0)
    assert state.cpu_seconds == pytest.approx(2.0)

"""Real processes, each with one fault, seen from outside through records and /proc."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ray_sentinel.progress.proc.cgroup import cgroup_mounts
from ray_sentinel.progress.proc.processes import ProcessTable
from tests.support.parts import lacking
from tests.support.ranks import DEADLINE, Ranks
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

_PIN = "import os; os.sched_setaffinity(0, {{{}}})"


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    started = Ranks(tmp_path)
    yield started
    started.close()


def test_a_healthy_rank(ranks):
    process = ranks.start("none", rank=3)
    ranks.until(lambda: ranks.stepping(process, 15), "steps")
    seen = ranks.of(process)
    assert (seen.rank.id.rank, seen.rank.world_size, seen.rank.source) == (3, 64, "record")
    assert seen.process.interpreter == "runs"
    assert seen.progress.phase == "train"
    assert 0.04 < seen.progress.step_seconds < 5
    assert len(seen.progress.recent_step_seconds) >= 14
    assert seen.quiet_seconds < 5
    assert ranks.watch.problems == ()


def test_a_rank_that_starts_during_a_look_lives(ranks, monkeypatch):
    refresh, started = ProcessTable.refresh, []

    def and_one_starts(table, now):
        known = refresh(table, now)
        if not started:
            started.append(ranks.start("none"))
            eventually(lambda: [*ranks.folder.glob("*.record")], "its record", DEADLINE)
        return known

    monkeypatch.setattr(ProcessTable, "refresh", and_one_starts)
    ranks.until(lambda: started and ranks.stepping(started[0], 15), "steps")
    assert ranks.exits == []


def test_a_rank_that_ends_during_its_first_look_has_last_words(ranks, monkeypatch):
    process = ranks.start("exception")
    eventually(lambda: [*ranks.folder.glob("*.record")], "its record", DEADLINE)
    refresh = ProcessTable.refresh

    def once_it_has_ended(table, now):
        process.wait()
        return refresh(table, now)

    monkeypatch.setattr(ProcessTable, "refresh", once_it_has_ended)
    ranks.until(lambda: ranks.exits, "its exit")
    assert "no such batch" in ranks.exits[0].last_words.text


def test_without_attaching_it_is_still_found(ranks):
    process = ranks.start("silent", rank=2)
    ranks.until(lambda: ranks.of(process), "the rank")
    seen = ranks.of(process)
    assert (seen.rank.source, seen.rank.id.rank, seen.progress) == ("environ", 2, None)


@pytest.mark.parametrize("fault", ["gil-sleep", "gil-spin"])
def test_the_interpreter_lock_is_held(ranks, fault):
    process = ranks.start(fault)
    ranks.until(lambda: ranks.stepping(process), "steps")
    ranks.until(
        lambda: ranks.of(process).process.interpreter == "gil-held", "the lock is held", every=0.5
    )
    # And it stays so.
    for _ in range(3):
        time.sleep(0.5)
        ranks.poll()
        assert ranks.of(process).process.interpreter == "gil-held"


def test_a_holder_that_hardly_gets_a_cpu_is_given_time(ranks):
    """Who gets a quarter of a CPU needs four seconds for what else takes one."""
    process = ranks.start("gil-spin")
    ranks.until(lambda: ranks.stepping(process), "steps")
    cpu = max(os.sched_getaffinity(0))
    busy = subprocess.Popen([sys.executable, "-c", f"{_PIN.format(cpu)}\nwhile True: pass"])
    try:
        # For its main thread alone: the companion gets its CPU, and asks for the lock.
        os.sched_setaffinity(process.pid, {cpu})
        os.setpriority(os.PRIO_PROCESS, process.pid, 5)
        ran: dict[str, float] = {}

        def held() -> bool:
            seen = ranks.of(process).process
            if seen.interpreter == "runs" or "gil-held" not in ran:
                ran[seen.interpreter] = seen.main_cpu_seconds
            return "gil-held" in ran

        ranks.until(held, "the lock is held", every=0.3)
        assert ran["gil-held"] - ran["runs"] > 0.4
        assert ran["unknown"] > ran["runs"], "it was not proven at once"
    finally:
        busy.kill()
        busy.wait()


def test_a_sleeping_rank_runs_its_interpreter_and_is_quiet(ranks):
    process = ranks.start("sleep")
    ranks.until(lambda: ranks.stepping(process), "steps")
    ranks.until(lambda: ranks.of(process).quiet_seconds > 2, "quiet")
    assert ranks.of(process).process.interpreter == "runs"


def test_a_declared_phase(ranks):
    process = ranks.start("phase")
    ranks.until(lambda: ranks.stepping(process), "steps")
    ranks.until(lambda: ranks.of(process).progress.phase == "checkpoint", "the phase")


def test_stopped_and_continued(ranks):
    process = ranks.start("sigstop")
    ranks.until(lambda: ranks.stepping(process), "steps")
    ranks.until(lambda: ranks.of(process).process.state == "T", "stopped")
    time.sleep(2)
    ranks.poll()
    seen = ranks.of(process)
    assert (seen.process.interpreter, seen.progress.step) == ("unknown", 20)
    assert seen.quiet_seconds > 1
    process.send_signal(signal.SIGCONT)
    ranks.until(lambda: ranks.stepping(process, 30), "goes on")
    assert ranks.of(process).process.interpreter == "runs"


def test_blocked_in_the_kernel(ranks):
    process = ranks.start("blocked", seconds=20)
    ranks.until(lambda: ranks.stepping(process), "steps")
    ranks.until(lambda: ranks.of(process).process.state == "D", "D state")
    seen = ranks.of(process).process
    assert seen.wchan
    assert not seen.frozen


@pytest.fixture
def throttle() -> Iterator[Callable[[int], None]]:
    """Gives a process a thousandth of a CPU, by a control group of its own."""
    if os.geteuid() != 0:
        lacking("only root can make control groups")
    mounts = cgroup_mounts(Path("/proc/self/mountinfo").read_text(), "cpu")
    name = f"ray-sentinel-test-{os.getpid()}"
    if "cpu" in mounts:
        group, limits = Path(mounts["cpu"]) / name, {"cpu.cfs_quota_us": "1000"}
        limits = {"cpu.cfs_period_us": "1000000", **limits}
    elif "" in mounts and "cpu" in (Path(mounts[""]) / "cgroup.subtree_control").read_text():
        group, limits = Path(mounts[""]) / name, {"cpu.max": "1000 1000000"}
    else:
        lacking("no control group with a cpu controller to write to")
    group.mkdir()

    def move(pid: int) -> None:
        (group / "cgroup.procs").write_text(str(pid))

    for file, value in limits.items():
        (group / file).write_text(value)
    yield move
    for pid in (group / "cgroup.procs").read_text().split():
        (group.parent / "cgroup.procs").write_text(pid)
    group.rmdir()


@pytest.fixture(params=["freezer", ""], ids=["cgroup1", "cgroup2"])
def freeze(request: pytest.FixtureRequest) -> Iterator[Callable[[int, bool], None]]:
    """Freezes a process in a control group of its own, and thaws it."""
    if os.geteuid() != 0:
        lacking("only root can make control groups")
    mounts = cgroup_mounts(Path("/proc/self/mountinfo").read_text())
    if request.param not in mounts:
        # Every machine has one of the two.
        pytest.skip("this machine has no such control groups")
    group = Path(mounts[request.param]) / f"ray-sentinel-test-{os.getpid()}"
    group.mkdir()
    first = request.param == "freezer"
    switch = group / ("freezer.state" if first else "cgroup.freeze")

    def turn(pid: int, on: bool) -> None:
        (group / "cgroup.procs").write_text(str(pid))
        switch.write_text(("FROZEN" if on else "THAWED") if first else str(int(on)))

    yield turn
    switch.write_text("THAWED" if first else "0")
    for pid in (group / "cgroup.procs").read_text().split():
        (group.parent / "cgroup.procs").write_text(pid)
    group.rmdir()


def test_frozen_and_thawed(ranks, freeze):
    process = ranks.start("none")
    ranks.until(lambda: ranks.stepping(process), "steps")
    freeze(process.pid, True)
    ranks.until(lambda: ranks.of(process).process.frozen, "frozen")
    time.sleep(2)
    ranks.poll()
    seen = ranks.of(process)
    assert seen.process.frozen
    assert seen.process.interpreter == "unknown"
    step = seen.progress.step
    freeze(process.pid, False)
    ranks.until(lambda: ranks.stepping(process, step + 5), "goes on")
    assert not ranks.of(process).process.frozen


def test_starved_of_a_cpu(ranks, throttle):
    process = ranks.start("spin")
    ranks.until(lambda: ranks.stepping(process, 20), "steps")
    throttle(process.pid)
    seen: list[str] = []

    def starved() -> bool:
        seen.append(ranks.of(process).process.interpreter)
        return seen.count("starved") >= 3

    ranks.until(starved, "starved", every=1.0)
    assert "gil-held" not in seen


def test_the_thread_that_trains_is_not_always_the_main_thread(ranks):
    process = ranks.start("thread")
    ranks.until(lambda: ranks.stepping(process, 10), "steps")
    for _ in range(6):
        time.sleep(0.5)
        ranks.poll()
    assert ranks.of(process).quiet_seconds < 2


def test_children_write_nothing_into_the_record_and_are_no_ranks(ranks):
    process = ranks.start("fork")
    ranks.until(lambda: ranks.stepping(process, 40), "steps")
    for _ in range(6):
        ranks.poll()
        progress = ranks.of(process).progress
        assert progress.step < 1000
        assert progress.phase == "train"
        assert progress.scalars["loss"] > 0
        assert list(ranks.snapshots) == [process.pid]
        time.sleep(0.2)
    assert ranks.watch.children(process.pid, ranks.of(process).rank.process.start)


def test_after_detaching_a_rank_is_known_by_its_environment_only(ranks):
    process = ranks.start("detach")
    ranks.until(lambda: ranks.stepping(process), "steps")
    ranks.until(lambda: ranks.of(process).rank.source == "environ", "detached")
    assert ranks.of(process).progress is None


def test_attached_again_the_new_record_counts(ranks):
    process = ranks.start("reattach")
    ranks.until(lambda: ranks.stepping(process, 30), "steps of the second record")
    seen = ranks.of(process)
    assert seen.progress.steps_recorded < seen.progress.step
    assert seen.progress.last_words.text == "said by the second record"


def test_after_exec_the_record_does_not_count(ranks):
    process = ranks.start("exec")
    ranks.until(lambda: ranks.stepping(process, 20), "steps")
    ranks.until(lambda: ranks.of(process).rank.source == "environ", "the record is left")
    assert ranks.of(process).progress is None
    process.kill()
    process.wait()
    ranks.until(lambda: ranks.exits, "the exit")
    assert ranks.exits[0].signal == 9


FAULTS = {
    "sigkill": (None, 9, None),
    "exception": (1, None, "exception"),
    "os-exit": (5, None, None),
    "sys-exit": (4, None, "exit"),
    "segfault": (None, 11, None),
}


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_exits(ranks, fault):
    code, number, words = FAULTS[fault]
    process = ranks.start(fault, rank=4)
    ranks.until(lambda: ranks.stepping(process), "steps")
    ranks.until(lambda: ranks.exits, "the exit")
    (exit,) = ranks.exits
    assert (exit.rank.id.rank, exit.rank.process.pid) == (4, process.pid)
    assert exit.last_words is None if words is None else exit.last_words.kind == words
    if fault == "exception":
        assert exit.last_words.text == "ValueError: no such batch"
    # Our own child: its status can be read while it waits for us.
    assert (exit.code, exit.signal) == (code, number)
    assert abs(exit.at - time.time()) < 30
    assert exit.was_attached
    assert exit.progress.step == 20
    assert ranks.snapshots == {}
    ranks.poll()
    assert len(ranks.exits) == 1


def test_what_a_rank_that_never_attached_wrote_at_its_end_is_told(ranks):
    words = "raise ValueError('no such batch')"
    program = f"import time; time.sleep(4); {words}"
    ranks.spawn([sys.executable, "-c", program], rank=4)
    ranks.until(lambda: ranks.exits, "the exit")
    (exit,) = ranks.exits
    assert (exit.code, exit.was_attached) == (1, False)
    assert exit.last_output.endswith("ValueError: no such batch\n")


def test_a_normal_exit(ranks):
    process = ranks.start("none", seconds=2)
    ranks.until(lambda: ranks.stepping(process), "steps")
    ranks.until(lambda: ranks.exits, "the exit")
    (exit,) = ranks.exits
    assert (exit.code, exit.signal, exit.last_words.kind) == (0, None, "exit")
    assert exit.progress.phase == "teardown"


def test_last_words_that_are_said_while_the_records_are_read_are_told(ranks, monkeypatch):
    process = ranks.start("sys-exit", at=60)
    ranks.until(lambda: ranks.stepping(process), "steps")
    scan = ranks.watch.records.scan

    def read_and_wait():
        views = scan()
        process.wait(timeout=DEADLINE)
        return views

    monkeypatch.setattr(ranks.watch.records, "scan", read_and_wait)
    ranks.until(lambda: ranks.exits, "the exit")
    (exit,) = ranks.exits
    assert exit.last_words.kind == "exit", "else it counts as killed where its status is unknown"
    assert exit.progress.step == 60


@pytest.mark.parametrize(("fault", "words"), [("mp-exception", "exception"), ("mp-none", "exit")])
def test_a_child_of_multiprocessing_leaves_last_words(ranks, fault, words):
    parent = ranks.start(fault, seconds=3)
    pid = int(parent.stdout.readline())
    ranks.until(lambda: pid in ranks.snapshots, "the rank")
    ranks.until(lambda: any(exit.rank.process.pid == pid for exit in ranks.exits), "the exit")
    (exit,) = [exit for exit in ranks.exits if exit.rank.process.pid == pid]
    assert exit.last_words.kind == words


def test_exits_come_in_their_order(ranks):
    processes = [ranks.start("none", rank=rank) for rank in range(4)]
    ranks.until(lambda: all(ranks.stepping(process) for process in processes), "steps")
    for index in (2, 0, 3, 1):
        processes[index].kill()
        processes[index].wait()
    ranks.until(lambda: len(ranks.exits) == 4, "four exits")
    assert [exit.rank.id.rank for exit in ranks.exits] == [2, 0, 3, 1]
    orders = [exit.order for exit in ranks.exits]
    # Other jobs on the machine may end in between.
    assert orders == sorted(set(orders))
    assert sorted(exit.at for exit in ranks.exits) == [exit.at for exit in ranks.exits]


def test_records_of_the_dead_are_deleted_after_they_were_told_of(ranks, monkeypatch):
    monkeypatch.setattr("ray_sentinel.progress.stale.RETAIN", 0.5)
    process = ranks.start("sigkill")
    ranks.until(lambda: ranks.exits, "the exit")
    process.wait()
    ranks.until(lambda: not list(ranks.folder.iterdir()), "the folder is empty")
    assert len(ranks.exits) == 1


def test_a_rank_that_died_while_nobody_looked_is_told_of(ranks):
    process = ranks.start("exception")
    process.wait(timeout=30)
    ranks.poll()
    (exit,) = ranks.exits
    assert exit.last_words.text == "ValueError: no such batch"
    assert abs(exit.at - time.time()) < 20
    ranks.poll()
    assert len(ranks.exits) == 1


def test_thousands_of_old_records_do_not_hide_a_living_one(ranks, monkeypatch):
    monkeypatch.setattr("ray_sentinel.progress.stale.LITTER", 0.0)
    first = ranks.start("sigkill")
    first.wait(timeout=30)
    (record,) = ranks.folder.glob("*.record")
    data = record.read_bytes()
    for number in range(3000):
        (ranks.folder / f"a{number}.record").write_bytes(data)
    process = ranks.start("none", rank=1)
    ranks.until(lambda: ranks.stepping(process), "the living one")
    ranks.until(lambda: len(list(ranks.folder.glob("a*"))) == 0, "the litter is gone")
    assert ranks.stepping(process)

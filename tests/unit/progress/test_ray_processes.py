"""Workers of Ray as /proc shows them: real processes with Ray's titles, below one that plays the
raylet."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from ray_sentinel.model.identity import Node
from ray_sentinel.model.progress import RayExit, RayProcess
from ray_sentinel.progress.discovery.environment import ROLE_VARIABLE
from ray_sentinel.progress.discovery.ray_processes import MOST, RayProcessWatch
from ray_sentinel.progress.exits import ExitWatch
from ray_sentinel.progress.last_output import LastOutput
from ray_sentinel.progress.proc.processes import ProcessTable
from tests.support.proc_tree import ProcTree
from tests.support.waiting import eventually

WAKES = "exec 9<> <(:); while :; do read -t 0.05 -u 9; done"
"""A program of a shell that sleeps for short whiles."""
NODE = Node(id="n1", host="host1", address="10.0.0.1")


class Raylet:
    """A shell that starts processes under titles, and says their pids."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            ["bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pids: list[int] = []

    def start(self, title: str, program: str = "exec -a {title} sleep 1000") -> int:
        line = program.format(title=f'"{title}"')
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"({line}) </dev/null >/dev/null & echo $!\n")
        self.process.stdin.flush()
        pid = int(self.process.stdout.readline())
        self.pids.append(pid)
        eventually(lambda: line_of(pid).startswith(b"ray::"), "it has its title")
        return pid

    def end(self) -> None:
        for pid in self.pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.communicate()


def line_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def catches(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal (SigCgt of proc_pid_status(5))."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    caught = next(line.split()[1] for line in lines if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (number - 1) & 1)


class Agent:
    """Looks at real processes, at times that the test chooses."""

    def __init__(self, raylet: int) -> None:
        self.now = 1000.0
        self.drivers: list[tuple[str, int]] = []
        self.engines: dict[tuple[int, int], str] = {}
        self._table = ProcessTable()
        self._watch = RayProcessWatch(raylet, ExitWatch(), LastOutput())

    def look(self) -> dict[int, RayProcess]:
        """A second later."""
        self.now += 1.0
        table = self._table.refresh(self.now)
        told = self._watch.poll(NODE, table, self.drivers, self.now, self.engines)
        assert {one.process.host for one in told} <= {"host1"}
        return {one.process.pid: one for one in told}

    def exits(self) -> tuple[RayExit, ...]:
        return self._watch.exits(time.time())

    def sees(self, pid: int) -> RayProcess:
        """Once it is seen; the table takes new processes in turns."""
        return eventually(lambda: self.look().get(pid), f"process {pid} is seen")


@pytest.fixture
def raylet() -> Iterator[Raylet]:
    made = Raylet()
    try:
        yield made
    finally:
        made.end()


@pytest.fixture
def agent(raylet: Raylet) -> Agent:
    return Agent(raylet.process.pid)


def test_what_runs_stands_in_the_title(raylet: Raylet, agent: Agent) -> None:
    method, task = raylet.start("ray::Rollout.generate"), raylet.start("ray::preprocess()")
    assert agent.sees(method).title == "Rollout.generate"
    assert agent.sees(task).title == "preprocess"


def test_what_a_worker_has_forked_is_no_worker_for_all_its_title(raylet: Raylet) -> None:
    forks = "exec -a {title} bash -c 'exec -a {title} sleep 1000 & wait'"
    worker = raylet.start("ray::Trainer.update", forks)
    children = Path(f"/proc/{worker}/task/{worker}/children")
    child = int(eventually(children.read_text, "it has forked").split()[0])
    raylet.pids.append(child)
    table = ProcessTable()

    def known() -> bool:
        found = table.refresh(1000.0)
        return all(pid in found and found[pid].arguments[:1] for pid in (worker, child))

    eventually(known, "both are in the table")
    watch = RayProcessWatch(raylet.process.pid, ExitWatch(), LastOutput())
    told = watch.poll(NODE, table.refresh(1001.0), [], 1001.0)
    assert [one.process.pid for one in told] == [worker]


def test_one_that_sleeps_stands_still(raylet: Raylet, agent: Agent) -> None:
    pid = raylet.start("ray::Rollout.generate")
    agent.sees(pid)
    # A program that has its title may still be starting.
    eventually(lambda: agent.look()[pid].moved_at < agent.now - 1.0, "it has begun to sleep")
    first = agent.look()[pid]
    for _ in range(5):
        last = agent.look()[pid]
    assert (last.since, last.moved_at, last.state) == (first.since, first.moved_at, "S")
    assert last.moved_at < agent.now - 3.0


def test_one_that_computes_or_wakes_moves(raylet: Raylet, agent: Agent) -> None:
    computes = raylet.start("ray::Rollout.generate", "exec -a {title} sha1sum /dev/zero")
    agent.sees(computes)
    wakes = raylet.start("ray::Rollout.poll", f"exec -a {{title}} bash -c '{WAKES}'")
    agent.sees(wakes)
    for pid in (computes, wakes):
        before = agent.look()[pid].moved_at
        eventually(lambda p=pid, b=before: agent.look()[p].moved_at > b, "it moves")  # type: ignore[misc]
        assert agent.look()[pid].since < agent.now - 1.0


def test_a_stopped_one_and_one_that_ends(raylet: Raylet, agent: Agent) -> None:
    pid = raylet.start("ray::Rollout.generate")
    agent.sees(pid)
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: agent.look()[pid].state == "T", "it is stopped")
    still = agent.look()[pid].moved_at
    assert agent.look()[pid].moved_at == still
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: pid not in agent.look(), "it has ended")


def test_a_title_that_changes_begins_anew(raylet: Raylet, agent: Agent) -> None:
    begins = 'trap "exec -a ray::Rollout.generate sleep 1000" USR1'
    pid = raylet.start("ray::Rollout", f"exec -a {{title}} bash -c '{begins}; {WAKES}'")
    first = agent.sees(pid)
    assert first.title == "Rollout"
    # It has its title before its shell has read the trap.
    eventually(lambda: catches(pid, signal.SIGUSR1), "the signal is caught")
    os.kill(pid, signal.SIGUSR1)

    def begun() -> RayProcess | None:
        # During exec() a process has no command line, so that one look may not show it.
        seen = agent.look().get(pid)
        return seen if seen is not None and seen.title == "Rollout.generate" else None

    called = eventually(begun, "the call has begun")
    assert called.since > first.since
    assert called.process == first.process


def test_others_are_left_out(raylet: Raylet, agent: Agent) -> None:
    """Our own actors, workers of another raylet, those that never ran, and other programs."""
    shown = raylet.start("ray::Rollout.generate")
    raylet.start("ray::IDLE")
    raylet.start("ray::Coordinator", f"export {ROLE_VARIABLE}=actor; exec -a {{title}} sleep 1000")
    other = Raylet()
    try:
        foreign = other.start("ray::Rollout.generate")
        agent.sees(shown)
        for _ in range(10):
            assert set(agent.look()) == {shown}
        assert Agent(other.process.pid).sees(foreign).title == "Rollout.generate"
    finally:
        other.end()


def test_a_driver_is_known_by_address_and_pid(raylet: Raylet, agent: Agent) -> None:
    agent.drivers = [("10.0.0.1", os.getpid()), ("10.0.0.2", raylet.process.pid)]
    seen = agent.sees(os.getpid())
    assert (seen.title, seen.process.pid) == ("", os.getpid())
    assert raylet.process.pid not in agent.look(), "it is the pid of a driver elsewhere"


def test_the_end_of_a_zombie_is_told_once(agent: Agent) -> None:
    driver = subprocess.Popen(["sleep", "1000"])
    try:
        agent.drivers = [(NODE.address, driver.pid)]
        agent.sees(driver.pid)
    finally:
        driver.kill()
    (ended,) = eventually(agent.exits, "its exit is told")
    for _ in range(3):
        assert driver.pid not in agent.look()
        assert agent.exits() == (ended,)
    driver.wait()


def test_how_one_has_ended_is_told(raylet: Raylet, agent: Agent) -> None:
    pid = raylet.start("ray::Rollout.generate")
    process = agent.sees(pid).process
    os.kill(pid, signal.SIGKILL)
    (ended,) = eventually(agent.exits, "its exit is told")
    assert ended.process == process


class Many:
    """A node with more workers than are told; from files that look like /proc's."""

    def __init__(self, root: Path) -> None:
        self.tree = ProcTree(root)
        self.tree.process(10, 1, "raylet", exe="/usr/bin/raylet", command="raylet")
        self._table = ProcessTable(root)
        self._watch = RayProcessWatch(10, ExitWatch(root), LastOutput(root), root)
        self._now = 1000.0
        self._ran = self._waited = 0.0
        self._counted = 0

    def look(self) -> dict[int, str]:
        return {one.process.pid: one.title for one in self.told()}

    def told(self) -> tuple[RayProcess, ...]:
        """A second later."""
        self._now += 1.0
        return self._watch.poll(NODE, self._table.refresh(self._now), (), self._now)

    def restless_for(self, seconds: Iterable[tuple[float, float]], state: str = "S") -> float:
        """What a look says after ``seconds``, in each of which the main thread ran and waited for
        a CPU for so long."""
        if not self._counted:
            self.tree.process(1000, 10, "ray::Rollout.generate", state=state)
            self._count(0.1, 0.0)
            self.told()
        for ran, waited in seconds:
            self._count(ran, waited)
            (seen,) = self.told()
        return self._now - (self._now if seen.busy_since is None else seen.busy_since)

    def _count(self, ran: float, waited: float) -> None:
        self._ran, self._waited = self._ran + ran, self._waited + waited
        self._counted += bool(ran)
        counts = f"{int(self._ran * 1e9)} {int(self._waited * 1e9)} {self._counted}\n"
        (self.tree.root / "1000" / "schedstat").write_text(counts)


@pytest.fixture
def many(tmp_path: Path) -> Many:
    return Many(tmp_path / "proc")


def test_their_number_is_bounded(many: Many) -> None:
    for number in range(600):
        many.tree.process(1000 + number, 10, "ray::Rollout.generate")
    first = many.look()
    assert sorted(first) == list(range(1000, 1000 + MOST))
    assert many.look() == first


def test_workers_that_never_ran_take_nobodys_place(many: Many) -> None:
    for number in range(600):
        many.tree.process(1000 + number, 10, "ray::IDLE")
    many.tree.process(5000, 10, "ray::Rollout.generate")
    assert many.look() == {5000: "Rollout.generate"}
    many.tree.process(5000, 10, "ray::IDLE")
    assert many.look() == {5000: "IDLE"}, "it has run something"


@pytest.mark.parametrize(
    ("ran", "waited", "restless"),
    [(1.0, 0.0, True), (0.1, 0.88, True), (0.5, 0.2, False), (0.9, 0.0, False)],
)
def test_a_main_thread_rests_or_does_not(
    many: Many, ran: float, waited: float, restless: bool
) -> None:
    """Who waits for a CPU does not rest. ``ran`` and ``waited``: seconds of each second."""
    told = many.restless_for([(ran, waited)] * 20)
    assert told == 20.0 if restless else told < 10.0
    assert many.restless_for([(0.0, 0.0)]) == 0.0, "it has rested for a second"


def test_a_wait_for_a_cpu_counts_although_the_kernel_adds_it_when_it_is_over(many: Many) -> None:
    slow = [(0.1, 0.3), (0.3, 1.3)] * 10
    assert many.restless_for(slow) == 20.0


@pytest.mark.parametrize("state", ["R", "S"])
def test_a_wait_for_a_cpu_may_take_many_looks(many: Many, state: str) -> None:
    """As of a nice process on a crowded machine; another one sleeps as long."""
    starved = [(0.1, 0.9), (0.0, 0.0), (0.0, 0.0), (0.0, 0.0), (0.05, 3.95)] * 4
    told = many.restless_for(starved, state)
    assert told == 20.0 if state == "R" else told < 5.0


def test_who_is_met_while_it_waits_for_a_cpu_may_rest_between(many: Many) -> None:
    assert many.restless_for([(0.3, 0.2)] * 20, "R") < 5.0


def test_the_engine_below_a_worker_is_told_with_it(raylet: Raylet, agent: Agent) -> None:
    pid = raylet.start("ray::Server.generate")
    start = agent.sees(pid).process.start
    agent.engines = {(pid, start): "sglang-17"}
    assert agent.look()[pid].engine == "sglang-17"

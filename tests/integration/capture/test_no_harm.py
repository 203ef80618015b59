"""Real tools leave nothing behind, whatever happens to them or to what they look at."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from ray_sentinel import process as programs
from ray_sentinel.capture import guard
from ray_sentinel.capture.session import sample
from ray_sentinel.capture.states import read_state, runs, tracer_of
from ray_sentinel.capture.tracer import Traced
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.process import spawn
from ray_sentinel.progress.rank.own_process import start_ticks
from tests.support.parts import require
from tests.support.traced import Processes, rank, run, running
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


@pytest.mark.usefixtures("gdb_on_path")
@pytest.mark.parametrize("tool", ["py-spy-native", "gdb"])
def test_a_stopped_process_stays_stopped_and_is_not_attached_to(
    processes: Processes, tool: str
) -> None:
    process = processes.start("spinning")
    os.kill(process.pid, signal.SIGSTOP)
    eventually(lambda: read_state(process.pid) == "T", "it is stopped", every=0.02)
    result = run(tool, process)
    assert result.skipped
    assert "stopped" in result.problem
    assert read_state(process.pid) == "T"
    plain = run("py-spy", process)
    assert plain.problem == ""
    assert plain.trace.state == "T"
    assert read_state(process.pid) == "T"


def test_a_dead_pid_and_a_reused_one_are_never_traced(processes: Processes) -> None:
    process = processes.start("asleep")
    other = ProcessId(process.host, process.pid, process.start + 1)
    processes.end()
    for tool in ("py-spy", "py-spy-native", "kernel"):
        result = run(tool, process)
        assert "gone" in result.problem
    processes.started.clear()
    alive = processes.start("asleep")
    for tool in ("py-spy", "py-spy-native", "kernel"):
        result = run(tool, ProcessId("node1", alive.pid, other.start))
        assert result.skipped, tool
        assert "gone" in result.problem
    outcome = sample([rank(0, ProcessId("node1", alive.pid, other.start))])
    assert outcome.facts[0].signature == ()
    assert "gone" in outcome.facts[0].error


def test_a_process_killed_while_it_is_looked_at(processes: Processes) -> None:
    process = processes.start("asleep")
    killer = threading.Timer(0.02, os.kill, (process.pid, signal.SIGKILL))
    killer.start()
    results = [run("py-spy-native", process, 20.0) for _ in range(3)]
    killer.join()
    assert any("gone" in result.problem for result in results)
    assert results[-1].trace.threads == ()


@pytest.mark.usefixtures("gdb_on_path")
def test_a_tracer_that_hangs_is_killed_and_the_process_runs_again(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray_sentinel.capture.tracers import gdb

    monkeypatch.setattr(gdb, "BACKTRACES", ("shell sleep 600",))
    process = processes.start("spinning")
    started = time.monotonic()
    result = run("gdb", process, 3.0)
    assert time.monotonic() - started < 10.0
    assert result.timed_out
    assert "ended after" in result.problem
    eventually(lambda: running(process), "it runs again", every=0.02)
    assert result.paused is not None
    assert result.paused > 0.5


WATCHES_SIGNALS = """
import signal, threading, time
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, lambda number, frame: print("got", number, flush=True))
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print("ready", flush=True)
while True:
    pass
"""


@pytest.mark.parametrize("tool", ["gdb", "cuda-gdb"])
def test_a_debugger_that_is_late_detaches_wherever_it_is(
    monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    """Before, in the middle of and after attach and backtraces; often while it attaches, where
    SIGTERM has the debugger send SIGINT to the process."""
    monkeypatch.setenv("PATH", f"{os.path.dirname(require(tool))}:{os.environ['PATH']}")
    ends: list[int | None] = []
    real = programs.run

    def noted(*args: Any, **options: Any) -> programs.Completed:
        done = real(*args, **options)
        ends.append(done.returncode)
        return done

    with subprocess.Popen(
        [sys.executable, "-c", WATCHES_SIGNALS], stdout=subprocess.PIPE, bufsize=0
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            os.set_blocking(child.stdout.fileno(), False)
            process = ProcessId("n", child.pid, start_ticks(child.pid))
            whole = run(tool, process, 60.0).seconds
            monkeypatch.setattr(programs, "run", noted)
            parts = [part / 100 for part in (5, 7, 8, 9, 10, 11, 13, 16, 20, 25, 35, 55, 75, 95)]
            for part in parts:
                deadline = whole * part
                result = run(tool, process, deadline)
                assert runs(child.pid), f"after {deadline:.3f} s"
                assert "was left" not in result.problem
            assert child.stdout.read(100) is None, "it got a signal"
            assert child.poll() is None
        finally:
            child.kill()
    assert ends.count(0) >= 3, ends
    assert -signal.SIGKILL not in ends, "none had to be killed"


class LeavesStopped:
    """A tool that stops its process and forgets it, as blocking tools have been seen to do."""

    name = "gdb"
    prefix = "gdb"
    intrusive = True

    def available(self) -> str:
        return ""

    def trace(self, process: ProcessId, deadline: float) -> Traced:
        os.kill(process.pid, signal.SIGSTOP)
        eventually(lambda: read_state(process.pid) == "T", "it is stopped", every=0.02)
        return guard.skipped(self, process, "left it stopped")


def test_a_process_that_a_tool_left_stopped_is_continued(processes: Processes) -> None:
    process = processes.start("spinning")
    result = guard.trace(LeavesStopped(), process, 5.0)
    assert result.continued
    eventually(lambda: running(process), "it runs again", every=0.02)


@pytest.mark.usefixtures("gdb_on_path")
def test_a_process_under_another_debugger_is_left_alone(processes: Processes) -> None:
    process = processes.start("asleep")
    debugger = spawn(
        ["gdb", "-nx", "-batch", "-p", str(process.pid), "-ex", "shell sleep 600"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        eventually(lambda: read_state(process.pid) == "t", "it is traced", every=0.02)
        result = run("py-spy-native", process)
        assert result.skipped
        assert "stopped" in result.problem or "traced" in result.problem
    finally:
        os.killpg(debugger.pid, signal.SIGKILL)
        debugger.wait(timeout=10)


@pytest.mark.usefixtures("gdb_on_path")
@pytest.mark.parametrize("delay", [0.0, 0.01, 0.05, 0.15, 0.4])
@pytest.mark.parametrize("tool", ["gdb", "py-spy-native"])
def test_sigkill_of_the_agent_in_the_middle_of_a_trace(
    processes: Processes, tool: str, delay: float
) -> None:
    """Its tools die with it, and the process runs on, whenever it strikes."""
    process = processes.start("spinning")
    script = (
        "from ray_sentinel.capture import guard\n"
        "from ray_sentinel.capture.tracer import all_tracers\n"
        "from ray_sentinel.model.identity import ProcessId\n"
        f"tracer = all_tracers()[{tool!r}]\n"
        "print('ready', flush=True)\n"
        "while True:\n"
        f"    guard.trace(tracer, ProcessId('n', {process.pid}, {process.start}), 60)\n"
    )
    agent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    try:
        assert agent.stdout is not None
        assert agent.stdout.readline() == b"ready\n"
        eventually(lambda: read_state(process.pid) in ("t", "T"), "it is traced", every=0.02)
        time.sleep(delay)
    finally:
        agent.kill()
        agent.wait(timeout=10)
        agent.stdout.close()
    eventually(lambda: running(process), "it runs again", 5.0, every=0.02)
    time.sleep(0.3)
    assert running(process)
    assert tracer_of(process.pid) == 0

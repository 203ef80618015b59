"""Real tools against real processes: what they see, and that they leave nothing behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_sentinel.capture import guard
from ray_sentinel.capture.refusal import why_refused
from ray_sentinel.capture.session import Plan, capture, sample
from ray_sentinel.capture.states import read_stat, read_state, tracer_of
from ray_sentinel.capture.tracer import Traced, all_tracers
from ray_sentinel.capture.tracers import cuda_gdb
from ray_sentinel.evidence.stacks import classify, explain, parse
from ray_sentinel.model.identity import ProcessId, Rank, RankId
from ray_sentinel.process import spawn
from tests.support.parts import needs_root, require

pytestmark = pytest.mark.integration

SOURCES = {
    "asleep": "import time\ndef work():\n    time.sleep(600)\n",
    "spinning": "def work():\n    n = 0\n    while True:\n        n += 1\n",
    "fifo": "import sys\ndef work():\n    open(sys.argv[1]).read()\n",
    "locked": """
        import threading
        def work():
            one, two, both = threading.Lock(), threading.Lock(), threading.Barrier(2)
            def other():
                with two:
                    both.wait()
                    one.acquire()
            threading.Thread(target=other, daemon=True).start()
            with one:
                both.wait()
                two.acquire()
        """,
    "gil_sleeper": """
        import ctypes, threading, time
        def tick():
            while True:
                time.sleep(0.01)
        def work():
            threading.Thread(target=tick, daemon=True).start()
            time.sleep(0.1)
            ctypes.PyDLL(None).sleep(600)
        """,
    "socket": """
        import socket
        def work():
            server = socket.create_server(("127.0.0.1", 0))
            socket.create_connection(server.getsockname()).recv(1)
        """,
}


def eventually(condition: object, seconds: float = 30.0) -> None:
    """Wait until ``condition()`` holds; fails at the deadline."""
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "the deadline was reached"
        time.sleep(0.02)


class Processes:
    """Starts processes that do one thing, and ends them, by pid."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, kind: str) -> ProcessId:
        source = textwrap.dedent(SOURCES[kind]) + "\nprint('ready', flush=True)\nwork()\n"
        script = self.folder / f"job_{kind}.py"
        script.write_text(source)
        fifo = self.folder / "pipe"
        if not fifo.exists():
            os.mkfifo(fifo)
        child = subprocess.Popen(
            [sys.executable, str(script), str(fifo)], stdout=subprocess.PIPE, cwd=self.folder
        )
        self.started.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        wanted = "R" if kind == "spinning" else "S"
        eventually(lambda: read_state(child.pid) == wanted)
        time.sleep(0.3)  # from "ready" to the call that blocks
        return identity(child.pid)

    def end(self) -> None:
        for child in self.started:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            child.wait(timeout=10)
            if child.stdout:
                child.stdout.close()


def identity(pid: int) -> ProcessId:
    stat = read_stat(pid)
    assert stat is not None
    return ProcessId("node1", pid, stat.start)


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    found = Processes(tmp_path)
    yield found
    found.end()


@pytest.fixture
def gdb_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    add_to_path(monkeypatch, require("gdb"))


@pytest.fixture
def cuda_gdb_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    add_to_path(monkeypatch, require("cuda-gdb"))


def add_to_path(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setenv("PATH", f"{os.path.dirname(program)}:{os.environ['PATH']}")


def run(tool: str, process: ProcessId, deadline: float = 60.0) -> Traced:
    return guard.trace(all_tracers()[tool], process, deadline)


def rank(number: int, process: ProcessId) -> Rank:
    return Rank(id=RankId("job", 0, number), process=process, node="n1")


def running(process: ProcessId) -> bool:
    return read_state(process.pid) in ("R", "S")


as_root = needs_root()


@pytest.mark.parametrize("kind", sorted(SOURCES))
def test_python_stacks_without_a_pause(processes: Processes, kind: str) -> None:
    process = processes.start(kind)
    result = run("py-spy", process)
    assert result.problem == ""
    assert result.paused is None
    (main,) = [thread for thread in result.trace.threads if thread.main]
    assert "work" in [frame.function for frame in main.frames]
    assert result.trace.process == process
    (again,) = parse(result.raw, process)
    assert [thread.frames for thread in again.threads] == [
        thread.frames for thread in result.trace.threads
    ]


@pytest.mark.parametrize(
    ("kind", "activity"),
    [
        ("asleep", "sleep"),
        ("fifo", "input-wait"),
        ("locked", "lock-wait"),
        ("socket", "network-wait"),
        ("spinning", "unknown"),
    ],
)
def test_native_stacks_tell_the_reason(processes: Processes, kind: str, activity: str) -> None:
    process = processes.start(kind)
    result = run("py-spy-native", process)
    assert result.problem == ""
    assert classify(result.trace).activity == activity
    assert result.paused is not None
    assert result.paused < 5.0
    assert running(process)
    assert not result.continued


@as_root
@pytest.mark.parametrize(
    ("kind", "activity"),
    [("asleep", "sleep"), ("fifo", "input-wait"), ("socket", "network-wait")],
)
def test_kernel_stacks_tell_the_reason_without_a_pause(
    processes: Processes, kind: str, activity: str
) -> None:
    result = run("kernel", processes.start(kind))
    assert classify(result.trace).activity == activity


def test_the_gil_held_in_c_is_seen(processes: Processes) -> None:
    process = processes.start("gil_sleeper")
    for tool in ("py-spy", "py-spy-native"):
        fact = classify(run(tool, process).trace)
        assert fact.keeps_gil, tool
    assert running(process)


@pytest.mark.usefixtures("gdb_on_path")
def test_gdb(processes: Processes) -> None:
    process = processes.start("asleep")
    result = run("gdb", process)
    assert result.problem == ""
    assert classify(result.trace).activity == "sleep"
    assert result.paused is not None
    assert running(process)


@pytest.mark.usefixtures("cuda_gdb_on_path")
def test_cuda_gdb_lists_no_kernels_where_there_is_no_gpu(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    process = processes.start("asleep")
    result = run("cuda-gdb", process)
    assert result.problem == ""
    assert result.trace.kernels_listed is True
    assert result.trace.kernels == ()
    assert classify(result.trace).activity == "sleep"
    assert running(process)


def test_cuda_gdb_is_found_in_the_toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "cuda-gdb"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert cuda_gdb.find_cuda_gdb() == str(program)


@pytest.mark.usefixtures("gdb_on_path")
@pytest.mark.parametrize("tool", ["py-spy-native", "gdb"])
def test_a_stopped_process_stays_stopped_and_is_not_attached_to(
    processes: Processes, tool: str
) -> None:
    process = processes.start("spinning")
    os.kill(process.pid, signal.SIGSTOP)
    eventually(lambda: read_state(process.pid) == "T")
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

    monkeypatch.setattr(gdb, "BACKTRACES", ("-ex", "shell sleep 600"))
    process = processes.start("spinning")
    started = time.monotonic()
    result = run("gdb", process, 3.0)
    assert time.monotonic() - started < 10.0
    assert result.timed_out
    assert "ended after" in result.problem
    eventually(lambda: running(process))
    assert result.paused is not None
    assert result.paused > 0.5


class LeavesStopped:
    """A tool that stops its process and forgets it, as blocking tools have been seen to do."""

    name = "gdb"
    prefix = "gdb"
    intrusive = True

    def available(self) -> str:
        return ""

    def trace(self, process: ProcessId, deadline: float) -> Traced:
        os.kill(process.pid, signal.SIGSTOP)
        eventually(lambda: read_state(process.pid) == "T")
        return guard.skipped(self, process, "left it stopped")


def test_a_process_that_a_tool_left_stopped_is_continued(processes: Processes) -> None:
    process = processes.start("spinning")
    result = guard.trace(LeavesStopped(), process, 5.0)
    assert result.continued
    eventually(lambda: running(process))


@pytest.mark.usefixtures("gdb_on_path")
def test_a_process_under_another_debugger_is_left_alone(processes: Processes) -> None:
    process = processes.start("asleep")
    debugger = spawn(
        ["gdb", "-nx", "-batch", "-p", str(process.pid), "-ex", "shell sleep 600"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        eventually(lambda: read_state(process.pid) == "t")
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
        eventually(lambda: read_state(process.pid) in ("t", "T"))
        time.sleep(delay)
    finally:
        agent.kill()
        agent.wait(timeout=10)
        agent.stdout.close()
    eventually(lambda: running(process), 5.0)
    time.sleep(0.3)
    assert running(process)
    assert tracer_of(process.pid) == 0


@as_root
def test_without_the_right_to_ptrace_the_missing_right_is_named(processes: Processes) -> None:
    process = processes.start("asleep")
    script = (
        "import os\n"
        "os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)\n"
        "from ray_sentinel.capture.refusal import why_refused\n"
        f"print(why_refused({process.pid}))\n"
    )
    # The package may stand in a folder that only root can read: it is loaded before the switch.
    script = "import ray_sentinel.capture.refusal\n" + script
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert "CAP_SYS_PTRACE" in done.stdout, done.stderr
    assert "user 0, we are user 65534" in done.stdout


def test_a_process_that_is_not_there_is_not_refused() -> None:
    assert "gone" in why_refused(1 << 22)


def test_one_look_at_many_processes(processes: Processes) -> None:
    kinds = sorted(SOURCES)
    found = [processes.start(kind) for kind in kinds]
    outcome = sample([rank(i, process) for i, process in enumerate(found)])
    assert outcome.problems == ()
    assert outcome.files == {}
    facts = dict(zip(kinds, outcome.facts, strict=True))
    assert [fact.rank for fact in outcome.facts] == [RankId("job", 0, i) for i in range(len(kinds))]
    assert facts["spinning"].active is True
    assert facts["gil_sleeper"].keeps_gil
    if os.geteuid() == 0:
        assert facts["fifo"].activity == "input-wait"
        assert facts["asleep"].activity == "sleep"
    assert all(running(process) for process in found)


def test_a_capture_looks_deeper_at_suspects_only(processes: Processes) -> None:
    suspect, waiter, other = (processes.start(kind) for kind in ("fifo", "asleep", "spinning"))
    outcome = capture(
        [rank(3, suspect)], [rank(1, waiter)], [rank(2, other)], Plan(deadline=30.0, cuda_gdb=False)
    )
    names = set(outcome.files)
    assert f"pyspy_node1_{suspect.pid}.txt" in names
    assert f"pyspy-native_node1_{suspect.pid}.txt" in names
    assert f"pyspy-native_node1_{waiter.pid}.txt" in names
    assert f"pyspy_node1_{other.pid}.txt" in names
    assert f"kernel_node1_{other.pid}.txt" in names
    assert f"pyspy-native_node1_{other.pid}.txt" not in names
    assert outcome.facts[0].activity == "input-wait"
    assert set(outcome.pauses) == {
        f"py-spy-native node1 {suspect.pid}",
        f"py-spy-native node1 {waiter.pid}",
    }
    assert all(running(process) for process in (suspect, waiter, other))


def test_a_tool_that_is_not_installed_is_one_problem_of_the_node(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_gdb, "find_cuda_gdb", lambda: None)
    found = [rank(i, processes.start("asleep")) for i in range(2)]
    outcome = capture(found, plan=Plan(native=False))
    (problem,) = outcome.problems
    assert "CUDA toolkit" in problem


def test_when_the_time_of_the_node_is_up_the_rest_is_not_run(processes: Processes) -> None:
    found = [rank(i, processes.start("asleep")) for i in range(2)]
    outcome = capture(found, plan=Plan(deadline=0.5, cuda_gdb=False))
    assert len(outcome.problems) == 2
    assert all("used up" in problem for problem in outcome.problems)
    assert all(fact.signature for fact in outcome.facts)


GLOO = """
import sys, time
import torch, torch.distributed as dist
rank, size, odd, store = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
dist.init_process_group("gloo", rank=rank, world_size=size, init_method="file://" + store)
def pause_here():
    time.sleep(600)
for step in range(10**6):
    if step == 3 and rank == odd:
        print("ready", flush=True)
        pause_here()
    elif step == 3:
        print("ready", flush=True)
    dist.all_reduce(torch.ones(8))
"""


def test_the_odd_rank_of_a_real_job_is_named(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(GLOO)
    odd = 1
    children = [
        subprocess.Popen(
            [sys.executable, str(script), str(i), "3", str(odd), str(tmp_path / "store")],
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for i in range(3)
    ]
    try:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
        time.sleep(1.0)
        ranks = [rank(i, identity(child.pid)) for i, child in enumerate(children)]
        rounds = []
        for _ in range(2):
            rounds.append(sample(ranks).facts)
            time.sleep(0.5)
        found = explain(rounds)
        assert [culprit.rank for culprit in found.culprits] == [odd]
        assert found.kind == "host-stuck"
        assert found.confidence >= 0.7
        deeper = capture([ranks[odd]], [ranks[0]], [ranks[2]], Plan(cuda_gdb=False, deadline=30.0))
        facts = {fact.rank.rank: fact for fact in deeper.facts if fact.rank}
        assert facts[0].waits_for_others is True
        assert facts[odd].activity == "sleep"
        native = deeper.files[f"pyspy-native_node1_{children[0].pid}.txt"]
        assert b"c10d::Work::wait" in native
    finally:
        for child in children:
            child.kill()
            child.wait(timeout=10)
            if child.stdout:
                child.stdout.close()

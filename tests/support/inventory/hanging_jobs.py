"""Stacks of hanging inference workers: when they are taken, of whom, and what they tell."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ray_sentinel.actors.bundles.index import DeploymentStorage, capture_root
from ray_sentinel.actors.coordinator.gathering.timed_capture import TimedCapture
from ray_sentinel.capture import guard, session
from ray_sentinel.capture.refusal import why_refused
from ray_sentinel.capture.session import PROCESS_SECONDS, capture
from ray_sentinel.capture.tracer import Traced, Tracer, all_tracers
from ray_sentinel.config import CaptureConfig, Config
from ray_sentinel.doctor.checks.tracing import TracingCheck
from ray_sentinel.doctor.checks.tracing import TracingFacts as Tools
from ray_sentinel.evidence.stacks import classify, parse
from ray_sentinel.evidence.stacks.readers.problems import explain_output
from ray_sentinel.model.identity import ProcessId, Rank, RankId
from ray_sentinel.model.stacks import StackFact, StackTrace
from ray_sentinel.model.status import JobStatus
from ray_sentinel.progress.discovery.titles import engine_ranks
from ray_sentinel.progress.proc.processes import ProcessTable
from tests.support.inventory.commands import command, option
from tests.support.inventory.doctors import doctor
from tests.support.inventory.row import Check, Row
from tests.support.proc_tree import ProcTree

HERE = ProcessId("node1", 7)
THREAD = "Thread 1 (Thread 0x7f16a03ad000 (LWP 7)):\n"
ENDED = "[Inferior 1 (process 7) detached]\n"
KERNELS = (
    "  Kernel Parent Dev     Grid Status   SMs Mask GridDim BlockDim Invocation\n"
    "*      0      -   3 52162520 Active 0x00000001 (4,1,1)  (64,1,1) flash_fwd_kernel<T>()\n"
)
PY_SPY = """\
Process 7: python3 train.py
Python v3.11.2 (/usr/bin/python3.11)

Thread 0x7f1234567890 (active): "MainThread"
    synchronize (torch/cuda/__init__.py:123)
    forward_batch (sglang/srt/managers/scheduler.py:456)
    event_loop_normal (sglang/srt/managers/scheduler.py:789)
Thread 0x7f1234567891 (idle): "ThreadPoolExecutor-0_0"
    _worker (concurrent/futures/thread.py:78)
"""


def frames(*functions: str) -> str:
    """A debugger's listing of one thread."""
    lines = [f"#{n}  0x00007f16 in {name} () from lib.so\n" for n, name in enumerate(functions)]
    return THREAD + "".join(lines) + ENDED


def _trace(text: str) -> StackTrace:
    (trace,) = parse(text.encode(), HERE)
    return trace


def pattern(text: str, activity: str, waits: bool | None = None, label: str = "") -> Check:
    """The stack says what the process does; the same without its telling frame does not."""

    def run(folder: Path) -> None:
        fact = classify(_trace(text))
        assert (fact.activity, fact.waits_for_others) == (activity, waits)
        assert label in fact.label
        assert classify(_trace(frames("step", "main"))).activity != activity

    return Check("explain stacks", run)


def read(tell: Callable[[StackTrace, StackFact], bool], text: str) -> Check:
    """``tell`` holds of the stack as it is read, and not of another one."""

    def run(folder: Path) -> None:
        trace, other = _trace(text), _trace(frames("step", "main"))
        assert tell(trace, classify(trace))
        assert not tell(other, classify(other))

    return Check("explain stacks", run)


def titles(*processes: tuple[int, int, tuple[str, ...]], ranks: list[int]) -> Check:
    """Which of the (pid, parent, command line) are workers."""

    def run(folder: Path) -> None:
        tree = ProcTree(folder / "proc")
        for pid, parent, words in processes:
            tree.process(pid, parent, *words)
        found = engine_ranks(ProcessTable(tree.root).refresh(0))
        assert sorted(one.process.pid for one in found) == ranks

    return Check("ranks by their titles", run)


SERVER = (100, 1, ("python3", "-m", "sglang.launch_server", "--tp", "2"))
PLAIN = ("python3", "-m", "sglang.launch_server")


def _ranks(count: int) -> list[Rank]:
    return [
        Rank(
            id=RankId(job="j", attempt=0, rank=rank),
            process=ProcessId("h", os.getpid() + rank * 10_000_000),
            node="n",
        )
        for rank in range(count)
    ]


def _ran(
    config: CaptureConfig, *, thorough: bool = True, gpu: bool = True
) -> tuple[list[tuple[str, int, float]], dict[str, bytes]]:
    """(tool, pid, deadline) of what a capture of three ranks runs, and its files."""
    ran: list[tuple[str, int, float]] = []

    def trace(tracer: Tracer, process: ProcessId, deadline: float) -> Traced:
        ran.append((tracer.name, process.pid, deadline))
        return guard.skipped(tracer, process, "not run in this test")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guard, "trace", trace)
        patch.setattr(session, "uses_cuda", lambda pid: gpu)
        patch.setattr("ray_sentinel.capture.tracers.cuda_gdb.find_cuda_gdb", lambda: "/cuda-gdb")
        return ran, capture((), (), _ranks(3), config, thorough=thorough).files


def _every_rank(folder: Path) -> None:
    pids = [rank.process.pid for rank in _ranks(3)]
    ran, _ = _ran(CaptureConfig(native=False))
    assert sorted(pid for tool, pid, _ in ran if tool == "cuda-gdb") == pids
    ran, _ = _ran(CaptureConfig(native=False), thorough=False)
    assert not [pid for tool, pid, _ in ran if tool == "cuda-gdb"]


def _both_tools(folder: Path) -> None:
    ran, _ = _ran(CaptureConfig(native=False))
    assert {"py-spy", "cuda-gdb"} <= {tool for tool, _, _ in ran}
    ran, _ = _ran(CaptureConfig(enabled=False))
    assert "cuda-gdb" not in {tool for tool, _, _ in ran}


def _a_minute(folder: Path) -> None:
    ran, _ = _ran(CaptureConfig(deadline=3.0, native=False))
    assert {seconds for tool, _, seconds in ran if tool == "cuda-gdb"} == {60.0}
    assert PROCESS_SECONDS == 60.0


def _file(prefix: str) -> Callable[[Path], None]:
    def run(folder: Path) -> None:
        _, files = _ran(CaptureConfig(native=False), gpu=False)
        assert f"{prefix}_h_{os.getpid()}.txt" in files
        _, files = _ran(CaptureConfig(native=False), gpu=False, thorough=False)
        assert not [name for name in files if name.startswith("cudagdb")]

    return run


def _folder(folder: Path) -> None:
    ours, theirs = folder / "ours", folder / "theirs"
    (ours / "backtraces").mkdir(parents=True)
    storage = DeploymentStorage(Config(log_dir=str(ours)))
    assert capture_root(storage, Config(log_dir=str(ours)), "backtraces") == ours / "backtraces"
    config = Config(log_dir=str(ours), capture=CaptureConfig(output_dir=str(theirs)))
    assert capture_root(storage, config, "backtraces") == theirs


def _waits(folder: Path) -> None:
    job = JobStatus(job="j", attempt=0, step=None, phase="train", step_age_seconds=0.0)
    timed = TimedCapture(600.0)
    assert timed.due([job], [], 0.0) == []
    assert timed.due([job], [], 599.0) == []
    assert timed.due([job], [], 600.0) == ["j"]
    assert timed.due([job], [], 1300.0) == []


def _off(folder: Path) -> None:
    assert not TimedCapture(CaptureConfig().wait_seconds).wanted
    assert TimedCapture(1.0).wanted


def _harmless_first(folder: Path) -> None:
    tracers = all_tracers()
    assert not tracers["py-spy"].intrusive
    assert tracers["cuda-gdb"].intrusive
    assert list(tracers).index("py-spy") < list(tracers).index("cuda-gdb")


def _same_namespace(folder: Path) -> None:
    for number, pid_space in enumerate(("pid:[1]", "pid:[2]")):
        proc = folder / str(number)
        for name, where in (("self", "pid:[1]"), ("7", pid_space)):
            (proc / name / "ns").mkdir(parents=True)
            (proc / name / "ns" / "pid").symlink_to(where)
            (proc / name / "ns" / "user").symlink_to("user:[1]")
            (proc / name / "status").write_text("Name:\tx\nCapEff:\t000001ffffffffff\n")
    assert "another container" not in why_refused(7, str(folder / "0"))
    assert "another container" in why_refused(7, str(folder / "1"))


def complaint(output: str, *says: str) -> Check:
    """A tool's complaint, and what is told; another one's is not told so."""

    def run(folder: Path) -> None:
        told = explain_output("cuda-gdb", output)
        assert not [word for word in says if word not in told], told
        assert not all(word in explain_output("cuda-gdb", "hello") for word in says)

    return Check("explain stacks: complaints", run)


WELL = Tools(py_spy="/usr/bin/py-spy", allowed=True, yama=0, cuda_gdb=True, gpus=True)
BARE = Tools(py_spy="", allowed=True, yama=0, cuda_gdb=True, gpus=True)
SHUT = Tools(py_spy="/usr/bin/py-spy", allowed=False, yama=2, cuda_gdb=True, gpus=True)

ROWS = [
    # Settings
    Row(
        "option.enabled",
        "the capture can be switched off",
        option("capture.enabled", False, True),
        "hangs are captured without being asked for: it is on, and this switches it off",
    ),
    Row(
        "option.enabled-cli",
        "a capture can be asked for at any time",
        command("dump", "--job", "j", job="j"),
    ),
    Row(
        "option.wait",
        "the seconds until a capture",
        option("capture.wait_seconds", 1800.0, 0.0),
        "a fixed time is a second way beside detection, so it is 0 (off) until it is set, not 600",
    ),
    Row(
        "option.wait-due",
        "after that time it is taken, once",
        Check("capture.wait_seconds", _waits),
    ),
    Row("option.wait-hour", "an hour is a time, too", option("capture.wait_seconds", 3600.0, 0.0)),
    Row(
        "option.off",
        "unless it is set nothing is taken by time",
        Check("capture.wait_seconds", _off),
    ),
    Row(
        "option.folder",
        "where the files go",
        option("capture.output_dir", "/shared/debug/backtraces", ""),
    ),
    Row(
        "option.folder-default",
        "or into a folder beside the job's logs",
        Check("capture.output_dir", _folder),
    ),
    # How it works
    Row(
        "how.beside",
        "tools run beside the workers, in their PID namespace",
        Check("capture: refusal", _same_namespace),
    ),
    Row(
        "how.title",
        "workers are found by the title that they set",
        titles(
            SERVER,
            (101, 100, ("sglang::scheduler_TP0",)),
            (102, 100, ("sglang::scheduler_TP1",)),
            ranks=[101, 102],
        ),
    ),
    Row(
        "how.fallback",
        "else by Python with sglang on its command line",
        titles((100, 1, PLAIN), (101, 100, PLAIN), (102, 100, PLAIN), ranks=[101, 102]),
    ),
    Row(
        "how.title-parts",
        "a title names tensor, pipeline, data and expert ranks",
        titles(
            SERVER,
            (101, 100, ("sglang::scheduler_TP0_PP0_DP0_EP0",)),
            (102, 100, ("sglang::scheduler_TP1_PP0_DP0_EP0",)),
            ranks=[101, 102],
        ),
    ),
    Row(
        "how.not-router",
        "routers and front ends are no workers",
        titles(
            SERVER,
            (101, 100, ("sglang::scheduler_TP0",)),
            (110, 100, ("sglang::detokenizer",)),
            (120, 1, ("python3", "-m", "sglang_router.launch_router")),
            ranks=[101],
        ),
    ),
    Row("how.both", "py-spy and cuda-gdb on each worker", Check("capture", _both_tools)),
    Row("how.all", "every worker of every node", Check("capture", _every_rank)),
    Row(
        "how.py-spy-file",
        "py-spy's file is named by host and pid",
        Check("capture: files", _file("pyspy")),
    ),
    Row("how.cuda-gdb-file", "and so is cuda-gdb's", Check("capture: files", _file("cudagdb"))),
    # What it tells
    Row(
        "read.threads",
        "py-spy: all threads, with function, file and line",
        read(
            lambda trace, fact: len(trace.threads) == 2 and trace.threads[0].frames[0].line == 123,
            PY_SPY,
        ),
    ),
    Row(
        "read.main",
        "which of them is the main one",
        read(lambda trace, fact: any(one.name == "MainThread" for one in trace.threads), PY_SPY),
    ),
    Row("read.active", "and what it does", pattern(PY_SPY, "device-wait")),
    Row(
        "read.kernel",
        "cuda-gdb: the kernels by name",
        read(
            lambda trace, fact: [one.name for one in trace.kernels] == ["flash_fwd_kernel<T>"],
            KERNELS + frames("cudaStreamSynchronize"),
        ),
    ),
    Row(
        "read.grid",
        "their grids and blocks",
        read(
            lambda trace, fact: (
                [(one.grid, one.block) for one in trace.kernels] == [("(4,1,1)", "(64,1,1)")]
            ),
            KERNELS + frames("cudaStreamSynchronize"),
        ),
    ),
    Row(
        "read.device",
        "on which device",
        read(
            lambda trace, fact: [one.device for one in trace.kernels] == [3],
            KERNELS + frames("cudaStreamSynchronize"),
        ),
    ),
    Row(
        "read.native",
        "and the threads' native frames",
        read(
            lambda trace, fact: trace.threads[0].frames[0].function == "ncclCommInitRank",
            frames("ncclCommInitRank", "main"),
        ),
    ),
    Row(
        "pattern.collective",
        "waiting for NCCL's set-up or a collective",
        pattern(
            frames("__futex_abstimed_wait_common", "ncclCommInitRank", "main"),
            "collective-wait",
            True,
        ),
    ),
    Row(
        "pattern.kernel",
        "a kernel is at work on the device",
        pattern(
            KERNELS + frames("cudaStreamSynchronize"), "device-wait", False, "flash_fwd_kernel"
        ),
    ),
    Row(
        "pattern.gil",
        "waiting for the interpreter's lock",
        pattern(frames("__lll_lock_wait", "PyGILState_Ensure", "callback"), "gil-wait"),
    ),
    # When there is nothing
    Row(
        "none.tools",
        "a tool is not installed",
        complaint("bash: cuda-gdb: command not found", "not installed", "pip"),
    ),
    Row(
        "none.tools-before",
        "that is told before the run",
        doctor(TracingCheck(), {"a": BARE}, {"a": WELL}, "py-spy", "pip install"),
    ),
    Row("none.gone", "the process had ended", complaint("ptrace: No such process.", "gone")),
    Row(
        "none.refused",
        "no right to attach",
        complaint("ptrace: Operation not permitted.", "CAP_SYS_PTRACE", "--cap-add=SYS_PTRACE"),
    ),
    Row(
        "none.refused-before",
        "that is tried before the run",
        doctor(TracingCheck(), {"a": SHUT}, {"a": WELL}, "SYS_PTRACE"),
    ),
    Row(
        "none.timeout",
        "cuda-gdb did not come back",
        complaint("cuda-gdb failed or timed out", "D state"),
    ),
    Row("none.minute", "each process is given a minute", Check("capture", _a_minute)),
    Row(
        "none.state",
        "processes in state D are looked for",
        command("inspect", "node1", node="node1"),
    ),
    # Its bounds
    Row(
        "bounds.pause",
        "cuda-gdb stops the process and py-spy does not",
        Check("capture: tracers", _harmless_first),
    ),
    Row(
        "bounds.several",
        "one look is a moment; several tell more",
        command("explain", "stacks", "first", "second"),
    ),
    Row(
        "bounds.kept", "files are kept after the job", option("log_dir", "/shared/ray_sentinel", "")
    ),
]

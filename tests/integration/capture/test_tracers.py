"""Real tools against real processes: what they see."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_sentinel.capture.tracers import cuda_gdb
from ray_sentinel.evidence.stacks import classify, parse
from tests.support.parts import needs_root
from tests.support.traced import SOURCES, Processes, run, running

pytestmark = pytest.mark.integration

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


def test_each_thread_has_its_own_state(processes: Processes) -> None:
    """Not the main thread's: where that serves a controller, another one trains."""
    trace = run("py-spy", processes.start("busy_server")).trace
    (main,) = [thread for thread in trace.threads if thread.main]
    (train,) = [thread for thread in trace.threads if not thread.main]
    assert (trace.state, main.state, main.active) == ("R", "R", True)
    assert (train.state, train.active) == ("S", False)


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

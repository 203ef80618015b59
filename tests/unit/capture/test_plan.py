"""What a capture is told to do, and what its tools may know of us."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ray_sentinel.capture import guard
from ray_sentinel.capture.environment import clean_environment, find_program
from ray_sentinel.capture.session import capture, intrusive_tools, run_intrusive, sample
from ray_sentinel.capture.states import uses_cuda
from ray_sentinel.capture.tracer import Traced, Tracer, all_tracers
from ray_sentinel.config import CaptureConfig
from ray_sentinel.model.identity import ProcessId, Rank, RankId


def test_tracers_are_found_by_looking_and_the_harmless_come_first() -> None:
    found = all_tracers()
    assert {"py-spy", "py-spy-native", "gdb", "cuda-gdb", "kernel"} <= set(found)
    intrusive = [tracer.intrusive for tracer in found.values()]
    assert intrusive == sorted(intrusive)
    assert {name for name, tracer in found.items() if not tracer.intrusive} == {"py-spy", "kernel"}


def test_what_the_configuration_means() -> None:
    config = CaptureConfig(max_stacks_per_node=0, gdb=True, cuda_gdb=False)
    assert config.samples_at_once == 1
    assert intrusive_tools(config) == ["py-spy-native", "gdb"]
    assert CaptureConfig(max_intrusive_per_node=3).intrusive_at_once == 3
    assert CaptureConfig(enabled=False).intrusive_at_once == 0
    assert intrusive_tools(CaptureConfig()) == ["py-spy-native", "cuda-gdb"]


@pytest.mark.parametrize(("deadline", "given"), [(60.0, 20.0), (18.0, 10.0), (6.0, 6.0)])
def test_one_tool_gets_a_third_of_the_node_s_time_at_least_ten_seconds(
    deadline: float, given: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[float] = []

    def trace(tracer: Tracer, process: ProcessId, deadline: float) -> Traced:
        found.append(deadline)
        return guard.skipped(tracer, process, "not run in this test")

    monkeypatch.setattr(guard, "trace", trace)
    process = ProcessId("h", os.getpid())
    rank = Rank(id=RankId(job="j", attempt=0, rank=0), process=process, node="n")
    tool = Always()
    run_intrusive([rank], [tool], CaptureConfig(deadline=deadline))
    assert found == [pytest.approx(given, abs=1.0)]
    assert run_intrusive([rank], [tool], CaptureConfig(deadline=0.5))[process][0].skipped
    assert len(found) == 1, "nothing is left of the node's time"


class Always:
    """A tool that is on every machine."""

    name, prefix, intrusive = "gdb", "gdb", True

    def available(self) -> str:
        return ""

    def trace(self, process: ProcessId, deadline: float) -> Traced:
        raise AssertionError("the guard runs it")


def test_nothing_to_look_at() -> None:
    assert sample([]).facts == ()
    assert capture([]).files == {}


def test_a_debugger_is_not_blinded_by_our_environment() -> None:
    kept = clean_environment(
        {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": "/x", "LD_PRELOAD": "y", "HOME": "/h",
         "DEBUGINFOD_URLS": "u"}
    )  # fmt: skip
    assert kept["HOME"] == "/h"
    assert not {"CUDA_VISIBLE_DEVICES", "PYTHONPATH", "LD_PRELOAD", "DEBUGINFOD_URLS"} & set(kept)


def test_programs_beside_the_interpreter_are_found() -> None:
    assert find_program("py-spy")
    assert find_program("no-such-program-anywhere") is None


def test_a_process_without_a_device_open_uses_no_cuda(tmp_path: Path) -> None:
    assert uses_cuda(os.getpid()) is False
    fds = tmp_path / "7" / "fd"
    fds.mkdir(parents=True)
    (fds / "0").symlink_to("/dev/null")
    assert uses_cuda(7, str(tmp_path)) is False
    (fds / "9").symlink_to("/dev/nvidiactl")
    assert uses_cuda(7, str(tmp_path)) is True
    assert uses_cuda(8, str(tmp_path)) is None

"""The capture after a fixed time: cuda-gdb on every rank, each with its own time."""

from __future__ import annotations

import os

import pytest

from ray_sentinel.capture import guard, session
from ray_sentinel.capture.session import capture
from ray_sentinel.capture.tracer import Traced, Tracer
from ray_sentinel.config import CaptureConfig
from ray_sentinel.model.identity import ProcessId, Rank, RankId

RANKS = [
    Rank(
        id=RankId(job="j", attempt=0, rank=rank),
        process=ProcessId("h", os.getpid() + rank * 10_000_000),
        node="n",
    )
    for rank in range(4)
]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, float]]:
    """(tool, pid, deadline) of what was run: a node without a GPU has no cuda-gdb to run."""
    found: list[tuple[str, int, float]] = []

    def trace(tracer: Tracer, process: ProcessId, deadline: float) -> Traced:
        found.append((tracer.name, process.pid, deadline))
        return guard.skipped(tracer, process, "not run in this test")

    monkeypatch.setattr(guard, "trace", trace)
    monkeypatch.setattr(session, "uses_cuda", lambda pid: True)
    monkeypatch.setattr("ray_sentinel.capture.tracers.cuda_gdb.find_cuda_gdb", lambda: "/cuda-gdb")
    return found


def of_cuda_gdb(ran: list[tuple[str, int, float]]) -> list[tuple[int, float]]:
    return sorted((pid, deadline) for tool, pid, deadline in ran if tool == "cuda-gdb")


def test_every_rank_is_looked_at_once_for_a_minute(ran: list[tuple[str, int, float]]) -> None:
    plan = CaptureConfig(deadline=3.0, native=False)
    capture(RANKS[:1], RANKS[1:2], RANKS[2:], plan, thorough=True)
    assert of_cuda_gdb(ran) == [(rank.process.pid, 60.0) for rank in RANKS]


def test_an_ordinary_capture_spares_the_others(ran: list[tuple[str, int, float]]) -> None:
    capture(RANKS[:1], RANKS[1:2], RANKS[2:], CaptureConfig(native=False))
    assert [pid for pid, _ in of_cuda_gdb(ran)] == [rank.process.pid for rank in RANKS[:2]]


@pytest.mark.parametrize(
    "settings",
    [
        CaptureConfig(enabled=False),
        CaptureConfig(max_intrusive_per_node=0),
        CaptureConfig(cuda_gdb=False),
    ],
)
def test_what_is_switched_off_is_never_run(
    settings: CaptureConfig, ran: list[tuple[str, int, float]]
) -> None:
    capture(RANKS[:1], RANKS[1:2], RANKS[2:], settings, thorough=True)
    assert of_cuda_gdb(ran) == []


def test_without_capture_the_harmless_looks_stay(ran: list[tuple[str, int, float]]) -> None:
    capture(
        RANKS[:1],
        (),
        RANKS[1:],
        CaptureConfig(enabled=False),
        thorough=True,
    )
    assert {tool for tool, _, _ in ran} == {"py-spy", "kernel"}


def test_each_process_has_a_file_that_says_why_where_nothing_was_run(
    ran: list[tuple[str, int, float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "uses_cuda", lambda pid: False)
    files = capture((), (), RANKS, CaptureConfig(), thorough=True).files
    for rank in RANKS:
        assert b"no NVIDIA device" in files[f"cudagdb_h_{rank.process.pid}.txt"]
    assert not any(
        name.startswith("cudagdb") for name in capture((), (), RANKS, CaptureConfig()).files
    )

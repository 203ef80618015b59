"""One look at all, a deeper one at suspects, within the time of the node."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ray_sentinel.capture import guard
from ray_sentinel.capture.session import capture, sample, sample_processes
from ray_sentinel.capture.tracer import Traced, Tracer
from ray_sentinel.capture.tracers import cuda_gdb
from ray_sentinel.config import CaptureConfig
from ray_sentinel.model.identity import ProcessId, RankId
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.waitgraph.stacks import explain
from tests.support.traced import SOURCES, Processes, Terminal, identity, rank, running
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


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


def test_an_interpreter_at_its_prompt_has_nothing_to_do(terminal: Terminal) -> None:
    terminal.type("import threading, time")
    terminal.type("threading.Thread(target=time.sleep, args=(600,), daemon=True).start()")

    def at_prompt() -> bool:
        (fact,) = sample_processes([terminal.identity])
        return (fact.activity, fact.error) == ("idle", "") and "prompt" in fact.label

    if os.geteuid() == 0:
        eventually(at_prompt, "it is at its prompt")
    terminal.type("time.sleep(600)")

    def sleeps() -> bool:
        (fact,) = sample_processes([terminal.identity])
        return "<module>" in str(fact.signature) and fact.activity != "idle"

    eventually(sleeps, "it runs what was typed")


def test_a_thread_that_is_waited_for_is_followed_and_waits_for_its_lock(
    processes: Processes,
) -> None:
    found = processes.start("delegating")

    def look() -> StackFact:
        (fact,) = sample_processes([found])
        return fact

    eventually(lambda: look().tid not in (None, found.pid), "its thread tells")
    first, second = look(), look()
    assert first.users_code
    assert first.signature[-1].startswith("function (job_delegating.py:")
    assert first.switches is not None
    assert first.switches == second.switches
    if os.geteuid() == 0:
        assert (first.activity, first.label) == ("lock-wait", "waiting for a lock")
    (as_rank,) = sample([rank(0, found)]).facts
    assert as_rank.tid == found.pid, "a rank is told by its main thread"


def test_a_capture_looks_deeper_at_suspects_only(processes: Processes) -> None:
    suspect, waiter, other = (processes.start(kind) for kind in ("fifo", "asleep", "spinning"))
    outcome = capture(
        [rank(3, suspect)],
        [rank(1, waiter)],
        [rank(2, other)],
        CaptureConfig(deadline=30.0, cuda_gdb=False),
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
    outcome = capture(found, config=CaptureConfig(native=False))
    (problem,) = outcome.problems
    assert "CUDA toolkit" in problem


@pytest.mark.parametrize("at_once", [1, 2, 0])
def test_as_many_processes_are_stopped_at_one_time_as_is_allowed(
    at_once: int, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, lock = guard.trace, threading.Lock()
    together = threading.Barrier(max(at_once, 1))
    now, most = 0, 0

    def counted(tracer: Tracer, process: ProcessId, deadline: float) -> Traced:
        nonlocal now, most
        if not tracer.intrusive:
            return real(tracer, process, deadline)
        with lock:
            now += 1
            most = max(most, now)
        try:
            together.wait(30.0)  # fails where they come one after the other
            return real(tracer, process, deadline)
        finally:
            with lock:
                now -= 1

    monkeypatch.setattr(guard, "trace", counted)
    suspects = [rank(n, processes.start("asleep")) for n in range(4)]
    config = CaptureConfig(deadline=60.0, cuda_gdb=False, max_intrusive_per_node=at_once)
    outcome = capture(suspects, config=config)
    assert most == at_once
    assert len(outcome.pauses) == (4 if at_once else 0)
    assert all(fact.signature for fact in outcome.facts)


def test_when_the_time_of_the_node_is_up_the_rest_is_not_run(processes: Processes) -> None:
    found = [rank(i, processes.start("asleep")) for i in range(2)]
    outcome = capture(found, config=CaptureConfig(deadline=0.5, cuda_gdb=False))
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
        deeper = capture(
            [ranks[odd]], [ranks[0]], [ranks[2]], CaptureConfig(cuda_gdb=False, deadline=30.0)
        )
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

"""Evidence from a real rank without a debugger: its companion thread, and faulthandler."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_sentinel.progress.ask import (
    NoAnswerError,
    arm_watchdog,
    ask_flight_recorder,
    each_left_recorder,
    held_stacks,
    request_stacks,
)
from ray_sentinel.progress.proc import pidfd
from ray_sentinel.progress.proc.tracing import may_trace
from ray_sentinel.progress.record_view import RecordView
from tests.support.parts import require_module
from tests.support.ranks import Ranks

pytestmark = pytest.mark.integration


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    started = Ranks(tmp_path)
    yield started
    started.close()


def view_of(ranks: Ranks, process: subprocess.Popen[str], steps: int = 3) -> RecordView:
    ranks.until(lambda: ranks.stepping(process, steps), "steps")
    view = ranks.watch.record(process.pid, ranks.of(process).rank.process.start)
    assert view is not None
    return view


def test_stacks_of_a_sleeping_rank(ranks):
    process = ranks.start("sleep")
    view = view_of(ranks, process, 20)
    stacks = json.loads(request_stacks(view, 10))
    threads = {thread["thread_name"]: thread for thread in stacks}
    assert {"MainThread", "ray-sentinel-companion"} <= set(threads)
    assert threads["MainThread"]["os_thread_id"] == process.pid
    names = [frame["name"] for frame in threads["MainThread"]["frames"]]
    assert names[-2:] == ["main", "<module>"]
    # And again.
    assert json.loads(request_stacks(view, 10))
    ranks.poll()
    assert ranks.watch.problems == ()


def test_a_stopped_rank_gives_no_answer_and_says_why(ranks):
    process = ranks.start("sigstop")
    view = view_of(ranks, process, 20)
    ranks.until(lambda: ranks.of(process).process.state == "T", "stopped")
    with pytest.raises(NoAnswerError, match="stopped"):
        request_stacks(view, 1)


def test_without_torch_there_is_no_flight_recorder(ranks):
    view = view_of(ranks, ranks.start("none"))
    with pytest.raises(NoAnswerError, match=r"torch\.distributed is not loaded"):
        ask_flight_recorder(view, 10)


def test_of_the_dead_nothing_can_be_asked(ranks):
    process = ranks.start("none")
    view = view_of(ranks, process)
    process.kill()
    process.wait()
    with pytest.raises(NoAnswerError, match="did not answer"):
        request_stacks(view, 0.3)
    view.path.unlink()
    with pytest.raises(NoAnswerError, match="No such file"):
        request_stacks(view, 0.3)


@pytest.mark.parametrize("fault", ["gil-sleep", "gil-spin"])
def test_faulthandler_serves_where_the_interpreter_is_held(ranks, fault):
    process = ranks.start(fault, at=100)
    view = view_of(ranks, process)
    with pytest.raises(NoAnswerError, match="not armed"):
        held_stacks(view)
    arm_watchdog(view)
    ranks.until(lambda: view.watchdog, "armed")
    text = b""

    def left() -> bool:
        nonlocal text
        try:
            text = held_stacks(view)
        except NoAnswerError:
            return False
        return b"most recent call first" in text and b"rank_program.py" in text

    ranks.until(left, "stacks are left")
    expected = b"hold_lock_asleep" if fault == "gil-sleep" else b"hold_lock_spinning"
    assert expected in text
    assert process.poll() is None


def test_where_we_may_not_trace_the_watchdog_is_armed_by_itself(ranks, monkeypatch):
    monkeypatch.setattr("ray_sentinel.progress.watch.may_trace", lambda *_: False)
    process = ranks.start("none")
    view = view_of(ranks, process)
    ranks.until(lambda: view.watchdog, "armed")


def test_where_we_may_trace_it_is_not(ranks):
    process = ranks.start("none")
    view = view_of(ranks, process, 40)
    assert may_trace(process.pid)
    assert not view.watchdog


def test_the_alarm_does_not_hold_up_forked_children(ranks):
    process = ranks.start("fork")
    view = view_of(ranks, process)
    arm_watchdog(view)
    ranks.until(lambda: view.watchdog, "armed")
    ranks.until(lambda: ranks.stepping(process, 30), "children were forked")

    def ended() -> bool:
        children = ranks.watch.children(view.header.pid, view.header.start)
        return all(pidfd.has_ended(*child.key) for child in children)

    ranks.until(ended, "no child hangs at its exit")
    arm_watchdog(view, on=False)
    ranks.until(lambda: not view.watchdog, "disarmed")


GLOO = """
import os, sys, time
os.environ["TORCH_FR_BUFFER_SIZE"] = "2000"
import torch, torch.distributed as dist
from ray_sentinel.progress.rank import lifecycle
from ray_sentinel.progress.rank import who
from ray_sentinel.progress.rank.writer import ProgressWriter

rank = int(sys.argv[1])
writer = ProgressWriter.open(who.resolve())
life = lifecycle.watch_over(writer)
dist.init_process_group("gloo", init_method=sys.argv[2], rank=rank, world_size=2)
for n in range(10):
    dist.all_reduce(torch.ones(4))
    writer.step(n)
if rank == 1:
    time.sleep(60)
dist.all_reduce(torch.ones(4))
"""


def test_the_flight_recorder_of_a_real_hang(ranks, tmp_path):
    require_module("torch")
    rendezvous = f"file://{tmp_path}/rendezvous"
    processes = [
        ranks.spawn([sys.executable, "-c", GLOO, str(rank), rendezvous], rank=None)
        for rank in range(2)
    ]
    ranks.until(
        lambda: all(ranks.stepping(process, 9) for process in processes), "steps", every=0.5
    )
    # Nobody told which rank is which; torch.distributed did, once it was up.
    ranks.until(
        lambda: (
            sorted(
                (item.rank.id.rank, item.rank.world_size or 0) for item in ranks.snapshots.values()
            )
            == [(0, 2), (1, 2)]
        ),
        "the ranks",
    )
    for rank, process in enumerate(processes):
        view = ranks.watch.record(process.pid, ranks.of(process).rank.process.start)
        ask_flight_recorder(view, 10)
        (dump,) = each_left_recorder(view)
        assert not dump.pickled
        recorded = json.loads(dump.data)
        assert len(recorded["entries"]) == (11 if rank == 0 else 10)

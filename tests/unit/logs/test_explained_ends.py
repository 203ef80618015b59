# ruff: noqa: E501 - log lines are as long as they are
"""A process that lost its peer and then ended: in all libraries' words the link was lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_sentinel.logs.catalogue import load_catalogue
from ray_sentinel.logs.triage import triage_path
from ray_sentinel.model.triage import Triage

STEPS = "".join(
    f"2025-09-18 10:{n // 6:02d}:{n % 6}0,000 - INFO - step {{0}}{n}/{{1}} | loss 2.5 | 10000 ms/step\n"
    for n in range(10, 60)
)
RUNNING, ALL = STEPS.format("", 5000), STEPS.format("", 59)
HEAD = '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/ws/train.py", line 371, in main\n[rank0]:     dist.all_reduce(t)\n[rank0]: '
GLOO = f"{HEAD}RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.1.17]:43185\n"
NCCL = f"{HEAD}torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:268, remote process exited or there was a network error, NCCL version 2.21.5\n[rank0]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n"
STORE = f"{HEAD}torch.distributed.DistNetworkError: failed to recv, got 0 bytes\n"
LAUNCHER = "W0918 10:09:53.120000 4711 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 4720 closing signal SIGTERM\n"
ROW = "E0918 10:09:55.500000 4711 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: {0} (pid: 4719) of binary: /opt/venv/bin/python\n"
UCX = "[node1:77:0:77] ib_mlx5_log.c:177  Transport retry count exceeded on mlx5_0:1/IB (synd 0x15 vend 0x81 hw_synd 0/0)\n"
HANDLER = "[node1:{0}] *** Process received signal ***\n[node1:{0}] Signal: {1}\n"
WATCHDOG = "[rank1]:[E918 10:28:20.000000000 ProcessGroupNCCL.cpp:629] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=601, OpType=ALLREDUCE, NumelIn=26214400, NumelOut=26214400, Timeout(ms)=600000) ran for 600029 milliseconds before timing out.\n"


def triage(tmp_path: Path, text: str) -> Triage:
    (tmp_path / "job.log").write_text(text, encoding="utf-8")
    return triage_path(tmp_path, load_catalogue(), now=0.0)


@pytest.mark.parametrize("said", [GLOO, NCCL, STORE], ids=["gloo", "nccl", "store"])
@pytest.mark.parametrize("end", ["", LAUNCHER + ROW.format(0)], ids=["bare", "launcher"])
def test_every_library_tells_alike_that_a_peer_went(tmp_path: Path, said: str, end: str) -> None:
    answer = triage(tmp_path, RUNNING + said + end)
    assert (answer.kind, answer.confidence, answer.culprits) == ("transport-lost", 0.7, ())


def test_a_process_that_ended_without_a_word_stays_the_culprit(tmp_path: Path) -> None:
    answer = triage(tmp_path, RUNNING + GLOO + LAUNCHER + ROW.format(3))
    assert (answer.kind, [who.rank for who in answer.culprits]) == ("unknown-death", [3])


NAMELESS = GLOO.replace("[rank0]: ", "")
SRUN = "srun: error: {}: Exited with exit code 1\n"


@pytest.mark.parametrize(
    "text",
    [
        GLOO + LAUNCHER + ROW.format(0) + SRUN.format("c2-n07: task 3"),
        GLOO + ROW.format(0) + SRUN.format("c2-n07: tasks 1-3"),
        GLOO + SRUN.format("c2-n07: tasks 0,2") + SRUN.format("c2-n08: tasks 4-7"),
        STORE + LAUNCHER + SRUN.format("c2-n07: task 1"),
        NAMELESS + SRUN.format("c2-n07: task 1"),
        NAMELESS + ROW.format(3),
        GLOO
        + "subprocess.CalledProcessError: Command 'python train.py' returned non-zero exit status 1.\n",
    ],
    ids=["launcher", "launchers", "ranges", "store", "nameless", "nameless row", "no process"],
)
def test_an_exit_code_that_names_no_rank_is_no_cause(tmp_path: Path, text: str) -> None:
    answer = triage(tmp_path, RUNNING + text)
    assert (answer.kind, answer.culprits) == ("transport-lost", ())


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (SRUN.format("c2-n07: task 3"), "unknown-death"),
        ("srun: error: c2-n07: task 3: Killed\n", "signal-kill"),
        ("srun: error: c2-n07: task 3: Segmentation fault (core dumped)\n", "signal-kill"),
    ],
)
def test_a_task_of_srun_that_is_a_rank_stays_the_culprit(
    tmp_path: Path, end: str, kind: str
) -> None:
    answer = triage(tmp_path, RUNNING + GLOO + end)
    assert (answer.kind, [who.rank for who in answer.culprits]) == (kind, [3])


@pytest.mark.parametrize(
    ("handler", "kind"),
    [
        (HANDLER.format(77, "Aborted (6)"), "transport-lost"),
        (HANDLER.format(78, "Aborted (6)"), "signal-kill"),
        (HANDLER.format(77, "Segmentation fault (11)"), "signal-kill"),
    ],
    ids=["its own abort", "another process", "no abort"],
)
def test_its_own_abort_explains_no_lost_peer(tmp_path: Path, handler: str, kind: str) -> None:
    assert triage(tmp_path, RUNNING + UCX + handler).kind == kind


@pytest.mark.parametrize("said", [GLOO, NCCL, WATCHDOG], ids=["gloo", "nccl", "watchdog"])
def test_a_peer_lost_after_the_last_step_is_teardown(tmp_path: Path, said: str) -> None:
    answer = triage(tmp_path, ALL + said)
    assert (answer.kind, answer.outcome) == ("soft-success", "completed")
    assert any(line.note == "first cause" for line in answer.evidence)

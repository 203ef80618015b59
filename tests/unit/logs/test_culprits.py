# ruff: noqa: E501 - log lines are as long as they are
"""Who is named: a node for its card, nobody for a cause that stands elsewhere, the one that differs."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_sentinel.logs.catalogue import load_catalogue
from ray_sentinel.logs.triage import triage_path
from ray_sentinel.model.triage import Triage

STEPS = "".join(
    f"2025-05-01 10:00:{n:02d},000 - INFO - step {n}/5000 | loss 2.9 | grad_norm 1.2 | 1000 ms/step\n"
    for n in range(1, 40)
)
WATCHDOG = "[rank{0}]:[E501 10:20:00.000000000 ProcessGroupNCCL.cpp:629] [Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=601, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600011 milliseconds before timing out.\n"


def triage(tmp_path: Path, text: str) -> Triage:
    (tmp_path / "job.log").write_text(text, encoding="utf-8")
    return triage_path(tmp_path, load_catalogue(), now=0.0)


def test_a_port_that_went_down_is_its_nodes(tmp_path: Path) -> None:
    line = "node48:34050:34121 [0] transport/net_ib.cc:101 NCCL WARN NET/IB : {0}Got async event : port error\n"
    told = triage(tmp_path, STEPS + line.format("mlx5_2:1 ")).culprits[0]
    assert (told.node, told.pid, told.gpu, told.rank) == ("node48", None, "", None)
    assert told.reason.startswith("mlx5_2 port 1: ")
    told = triage(tmp_path, STEPS + line.format("")).culprits[0]
    assert (told.node, told.pid, told.gpu) == ("node48", None, "")


def test_who_heard_of_a_cause_elsewhere_is_not_accused(tmp_path: Path) -> None:
    engine = "(EngineCore_DP0 pid=90) ERROR 05-01 10:06:50 [core.py:710] TimeoutError: RPC call to sample_tokens timed out.\n"
    server = """(APIServer pid=7) ERROR 05-01 10:06:51 [async_llm.py:480] AsyncLLM output_handler failed.
(APIServer pid=7) ERROR 05-01 10:06:51 [async_llm.py:480] Traceback (most recent call last):
(APIServer pid=7) ERROR 05-01 10:06:51 [async_llm.py:480]   File "/x/vllm/v1/engine/async_llm.py", line 439, in output_handler
(APIServer pid=7) ERROR 05-01 10:06:51 [async_llm.py:480]     outputs = await engine_core.get_output_async()
(APIServer pid=7) ERROR 05-01 10:06:51 [async_llm.py:480] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.
"""
    assert triage(tmp_path, engine + server).culprits == ()
    assert triage(tmp_path, server).culprits == ()


SCHEDULER = """{0}[2025-05-01 10:20:10 TP0] Scheduler hit an exception: Traceback (most recent call last):
{0}  File "/sglang/srt/managers/scheduler.py", line 2620, in run_scheduler_process
{0}    scheduler.event_loop_overlap()
{0}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB. GPU 3 has a total capacity of 79.11 GiB of which 300.00 MiB is free.
"""


def test_an_engines_rank_in_a_job_is_no_trainers(tmp_path: Path) -> None:
    told = triage(tmp_path, SCHEDULER.format("(SGLangEngine pid=5120, ip=10.0.0.7) ")).culprits[0]
    assert (told.rank, told.pid, told.ip) == (None, 5120, "10.0.0.7")
    assert triage(tmp_path, SCHEDULER.format("")).culprits[0].rank == 0


def test_the_message_before_a_bare_traceback_names_its_rank(tmp_path: Path) -> None:
    raised = """Traceback (most recent call last):
  File "/ws/train.py", line 350, in <module>
    batch = next(it)
KeyError: 'input_ids'
"""
    watchdogs = "".join(WATCHDOG.format(rank) for rank in range(8) if rank != 3)
    logged = "2025-05-01 10:09:55,000 - ERROR - [rank 3] unhandled exception in data worker\n"
    assert triage(tmp_path, STEPS + logged + raised + watchdogs).culprits[0].rank == 3
    told = "2025-05-01 10:09:55,000 - INFO - [rank 3] saved an example\n"
    assert triage(tmp_path, STEPS + told + raised + watchdogs).culprits == ()


def test_one_rank_that_did_not_reach_the_hub_is_named(tmp_path: Path) -> None:
    refused = "[rank{0}]: OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the cached files.\n"
    answer = triage(tmp_path, refused.format(5) + WATCHDOG.format(0) + WATCHDOG.format(1))
    assert (answer.kind, answer.culprits[0].rank) == ("hub-unreachable", 5)
    everyone = "".join(refused.format(rank) for rank in range(4))
    assert triage(tmp_path, everyone + WATCHDOG.format(7)).culprits == ()


def test_the_headline_quotes_the_rank_that_it_names(tmp_path: Path) -> None:
    detail = "[rank{0}]:[E501 10:20:00.000000000 ProcessGroupNCCL.cpp:2168] [PG ID 0 PG GUID 0(default_pg) Rank {0}]  failure detected by watchdog at work sequence id: 601 PG status: last enqueued work: 601, last completed work: 600\n"
    both = WATCHDOG + detail
    behind = (
        both.format(3)
        .replace("601", "#")
        .replace("600", "599")
        .replace("#", "600")
        .replace("599000", "600000")
        .replace("599011", "600011")
    )
    watchdogs = "".join(both.format(rank) for rank in range(3)) + behind
    answer = triage(tmp_path, STEPS + watchdogs)
    assert answer.culprits[0].rank == 3
    assert "[Rank 3]" in answer.summary
    assert "[Rank 0]" not in answer.summary


def test_a_completion_error_of_the_verbs_library_is_a_lost_transport(tmp_path: Path) -> None:
    line = "[node48:34050] mlx5: node48: got completion with error:\n00000000 00008a12 0a0007d3 0015d2d2\n"
    answer = triage(tmp_path, STEPS + line)
    assert (answer.kind, answer.culprits) == ("transport-lost", ())


def test_workers_that_get_no_place_wait_for_placement(tmp_path: Path) -> None:
    tries = "".join(
        f"(TrainController pid=881) 2025-05-01 10:{n:02d}:00,200 WARNING worker_group.py:400 -- Attempting to start training worker group of size 16 with the following resources: [{{'GPU': 1}}] * 16\n"
        f"(TrainController pid=881) 2025-05-01 10:{n:02d}:30,200 WARNING worker_group.py:420 -- The worker group startup timed out after 30.0 seconds waiting for 16 workers. Potential causes include: (1) temporary insufficient cluster resources while waiting for autoscaling\n"
        for n in range(40)
    )
    answer = triage(tmp_path, tries)
    assert (answer.kind, answer.signature, answer.phase) == (
        "hang",
        "ray-unschedulable",
        "placement",
    )


def test_a_counter_beside_the_word_of_completion_takes_nothing_from_it(tmp_path: Path) -> None:
    done = "2025-05-01 10:01:30,000 - INFO - Training finished successfully, 0 errors\n"
    for counted in (done, done.replace("0 errors", "0 errors, 0 failed")):
        assert triage(tmp_path, STEPS + counted).kind == "completed"
    assert (
        triage(tmp_path, STEPS + done.replace("Training finished successfully, ", "")).kind
        == "unknown-death"
    )


def test_no_step_is_expected_beyond_the_last_one(tmp_path: Path) -> None:
    bars = "".join(
        f"(skyrl_entrypoint pid=4411) 2025-05-01 10:{n:02d}:00.000 | INFO | Training Batches Processed:  22%|##  | {n}/40 [0{n}:00<31:00, 60.00s/it]\n"
        for n in range(1, 10)
    )
    end = "slurmstepd: error: *** JOB 4410 ON n1 CANCELLED AT 2025-05-01T12:40:40 DUE TO TIME LIMIT ***\n"
    assert triage(tmp_path, bars + end).progress.expected_step == 40


def files(tmp_path: Path, **texts: str) -> Triage:
    for name, text in texts.items():
        (tmp_path / f"{name}.log").write_text(text, encoding="utf-8")
    return triage_path(tmp_path, load_catalogue(), now=0.0)


def named(told: Triage) -> list[int | None]:
    return [who.rank for who in told.culprits]


GLOO_WAIT = "[rank{0}]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete\n"


@pytest.mark.parametrize("line", [WATCHDOG, GLOO_WAIT], ids=["nccl", "gloo"])
def test_a_rank_that_alone_does_not_time_out_is_waited_for(tmp_path: Path, line: str) -> None:
    told = files(tmp_path, **{f"rank{n}": STEPS + line.format(n) * (n != 2) for n in range(4)})
    assert (told.kind, named(told)) == ("nccl-timeout", [2])
    assert told.culprits[0].reason.startswith("its watchdog alone said nothing")


def test_a_log_that_is_missing_is_no_evidence(tmp_path: Path) -> None:
    lines = {f"rank{n}": STEPS + WATCHDOG.format(n) for n in range(8) if n != 3}
    assert named(files(tmp_path, **lines)) == []
    assert named(files(tmp_path, rank3=STEPS)) == [3]


def test_ranks_of_a_node_whose_output_is_one_file(tmp_path: Path) -> None:
    world = "world_size: 16\n" + STEPS
    first = world + "".join(WATCHDOG.format(n) for n in range(8))
    second = STEPS + "".join(WATCHDOG.format(n) for n in range(8, 15))
    assert named(files(tmp_path, node0=first, node1=second)) == [15]
    quarter = "world_size: 32\n" + STEPS + "".join(WATCHDOG.format(n) for n in range(8))
    others = {f"node{k}": "".join(WATCHDOG.format(8 * k + n) for n in range(8)) for k in (1, 2)}
    assert named(files(tmp_path, node0=quarter, **others)) == []


def test_who_ended_of_a_watchdog_waited_for_the_silent_one(tmp_path: Path) -> None:
    ends = "".join(
        f"E0501 10:20:09.000000 88 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -6) local_rank: {n} (pid: {900 + n}) of binary: /usr/bin/python\n"
        for n in (0, 1, 2)
    )
    lines = "".join(WATCHDOG.format(n) for n in (0, 1, 3))
    assert named(triage(tmp_path, "world_size=4\n" + STEPS + lines + ends)) == [2]


def test_a_line_of_the_culprit_is_shown_once(tmp_path: Path) -> None:
    killed = "[rank3]: RuntimeError: CUDA error: an illegal memory access was encountered\n"
    ended = "E0501 10:20:09.000000 88 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -6) local_rank: 3 (pid: 903) of binary: /usr/bin/python\n"
    told = triage(tmp_path, STEPS + killed + ended + WATCHDOG.format(3))
    shown = [(line.file, line.line) for line in told.evidence]
    assert named(told) == [3]
    assert len(shown) == len(set(shown)) == 3

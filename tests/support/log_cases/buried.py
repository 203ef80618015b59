# ruff: noqa: E501 - log lines are as long as they are
"""A concrete cause among many echoes of a lost peer, dated or not, before it and after it."""

from __future__ import annotations

from tests.support.log_cases.parts import (
    ANYBODY,
    REMOTE_EXITED,
    STEPS,
    Case,
    rank_log,
)

_OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.11 GiB of which 1.06 GiB is free."
_REMOTE = f"""Traceback (most recent call last):
  File "/app/train.py", line 60, in main
    dist.all_reduce(x)
{REMOTE_EXITED}
"""
_MANY_BARS = "".join(
    f"Training: {i // 10}%|#####     | {i}/1000 [{i // 60:02d}:{i % 60:02d}<10:00,  1.00s/it]\n"
    for i in range(1, 400)
)


def _rank(rank: int, tail: str) -> str:
    return rank_log(rank) + tail


CASES: dict[str, Case] = {
    "undated peer loss in one file, dated cause in another": Case(
        "python-exception",
        {"rank": 5},
        {
            "rank-0.log": _rank(0, _REMOTE),
            "rank-1.log": _rank(1, _REMOTE),
            "rank-5.log": _rank(
                5,
                """2025-05-01 10:01:20,100 ERROR train.py:88 Traceback (most recent call last):
  File "/app/train.py", line 60, in main
    y = table[idx]
IndexError: index 50304 is out of bounds for dimension 0 with size 50304
""",
            ),
        },
    ),
    "peer loss of files without any date": Case(
        "oom-gpu",
        {"rank": 3},
        {
            "rank-0.log": _MANY_BARS + _REMOTE,
            "rank-3.log": _rank(3, f"2025-05-01 10:01:01,000 ERROR {_OOM}\n"),
        },
    ),
    "peer loss after long undated bars": Case(
        "oom-gpu",
        {"rank": 3},
        {
            "rank-0.log": "2025-05-01 09:00:00,000 INFO starting\n" + _MANY_BARS + _REMOTE,
            "rank-3.log": _rank(3, f"2025-05-01 10:01:01,000 ERROR {_OOM}\n"),
        },
    ),
    "remote error half a minute before a signal": Case(
        "signal-kill",
        {"rank": 6},
        STEPS
        + "2025-05-01 10:01:00,000 node0:100:200 [0] NCCL WARN [Service thread] Could not receive type from localRank 6, res=6, closed=0\n"
        + "[rank0]:[E501 10:01:01.000000000 ProcessGroupNCCL.cpp:2271] [PG ID 0 PG GUID 0(default_pg) Rank 0] Process group watchdog thread terminated with exception: NCCL error: remote process exited or there was a network error, NCCL version 2.21.5\n"
        + "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n"
        + "E0501 10:01:35.100000 1000 torch/distributed/elastic/multiprocessing/api.py:870] failed (exitcode: -11) local_rank: 6 (pid: 1006) of binary: /usr/bin/python3\n",
    ),
    "scheduler cancels half a minute after the peers' loss": Case(
        "cancelled",
        ANYBODY,
        STEPS
        + "[rank0]:[E501 10:01:10.000000000 ProcessGroupNCCL.cpp:2271] [PG ID 0 PG GUID 0(default_pg) Rank 0] NCCL error: remote process exited or there was a network error, NCCL version 2.21.5\n"
        + "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n"
        + "slurmstepd: error: *** STEP 8123.0 ON node3 CANCELLED AT 2025-05-01T10:01:40 ***\n"
        + "slurmstepd: error: *** JOB 8123 ON node3 CANCELLED AT 2025-05-01T10:01:40 DUE TO TIME LIMIT ***\n",
    ),
    "heartbeats of a peer missed before its exception is told": Case(
        "python-exception",
        {"rank": 5},
        {
            "worker-0.log": rank_log(0)
            + "2025-05-01 10:01:30.140058: E external/xla/xla/tsl/distributed_runtime/coordination/coordination_service.cc:1393] The following tasks are unhealthy (stopped sending heartbeats):\n/job:jax_worker/replica:0/task:5\n",
            "rank-5.log": rank_log(5)
            + """2025-05-01 10:01:55,000 ERROR train failed
Traceback (most recent call last):
  File "/app/train.py", line 60, in main
    y = decode(batch)
ValueError: shard 17 holds no tokens
""",
        },
    ),
    "a worker that missed heartbeats before a checkpoint was not saved": Case(
        "checkpoint-fs-error",
        {"rank": 3},
        STEPS
        + "2025-05-01 10:01:30,000 WARNING worker 3 missed too many heartbeats\n"
        + "2025-05-01 10:01:59,000 ERROR [rank 3] CheckpointSaveError: Failed to save checkpoint to /ckpt/40: OSError: [Errno 116] Stale file handle\n",
    ),
    "broken pipes and aborts before a full disk": Case(
        "storage",
        ANYBODY,
        STEPS
        + "node0:100:200 [0] NCCL INFO comm 0x7f rank 0 nranks 8 cudaDev 0 busId 1b000 - Abort COMPLETE\n"
        + "[rank2]: BrokenPipeError: [Errno 32] Broken pipe\n"
        + "[rank1]: RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.3]:12345\n"
        + "[rank3]: torch.distributed.DistBackendError: NCCL communicator was aborted on rank 3.\n"
        + "2025-05-01 10:01:40,000 ERROR [rank 4] OSError: [Errno 28] No space left on device: '/scratch/cache'\n",
    ),
    "undated remote errors of Ray's actors before the node's death": Case(
        "node-fail",
        ANYBODY,
        "".join(
            f"(TrainerActor pid={900 + r}, ip=10.0.0.{r}) torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.cpp:77, remote process exited or there was a network error, NCCL version 2.21.5\n"
            f"(TrainerActor pid={900 + r}, ip=10.0.0.{r}) ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n"
            for r in range(4)
        )
        + "2025-05-01 10:02:00,000 ERROR ray: The node with node id: 4f3a and address: 10.0.0.9 and node name: 10.0.0.9 has been marked dead because the detector has missed too many heartbeats from it.\n",
    ),
}

# ruff: noqa: E501 - log lines are as long as they are
"""Watchdogs, coordination services and launchers after one rank failed, and known short messages."""

from __future__ import annotations

from tests.support.log_cases.parts import (
    ANYBODY,
    MAXTEXT_STEPS,
    NOBODY,
    REMOTE_EXITED,
    STEPS,
    Case,
    logged_traceback,
    minutes,
    rank_log,
    torchrun_table,
    watchdog,
    watchdog_detail,
)


def _horovod(missing: str) -> str:
    """As horovodrun prints it, each line with the tag of the process."""
    lines = (
        "[2025-03-01 10:15:00.5: W /tmp/horovod/common/stall_inspector.cc:107] One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds.",
        "Missing ranks:",
        *missing.splitlines(),
    )
    return "".join(f"[1,0]<stderr>:{line}\n" for line in lines)


CASES: dict[str, Case] = {
    "one rank behind enqueued": Case(
        "nccl-timeout",
        {"rank": 13},
        STEPS
        + "".join(watchdog_detail(r, 808, 810, 807) for r in range(32) if r != 13)
        + watchdog_detail(13, 806, 806, 805),
    ),
    "one rank stuck completed": Case(
        "nccl-timeout",
        {"rank": 2},
        STEPS
        + "".join(watchdog_detail(r, 808, 810, 807) for r in range(8) if r != 2)
        + watchdog_detail(2, 800, 810, 799),
    ),
    "missing rank with world size": Case(
        "nccl-timeout",
        {"rank": 6},
        "INFO world size: 16\n" + STEPS + "".join(watchdog(r) for r in range(16) if r != 6),
    ),
    "subgroups same": Case(
        "nccl-timeout",
        NOBODY,
        STEPS
        + "".join(
            f"[rank{r}]:[E501 10:10:00.0 ProcessGroupNCCL.cpp:2271] [PG ID 2 PG GUID {r % 4}(tp) Rank {r // 4}]  failure detected by watchdog at work sequence id: 50 PG status: last enqueued work: 50, last completed work: 49\n"
            for r in range(16)
        ),
    ),
    "barrier in ckpt": Case(
        "nccl-timeout",
        ANYBODY,
        STEPS
        + "[rank0]:[E501 10:40:00.0 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=BARRIER, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800031 milliseconds before timing out.\n",
    ),
    "rank0 exception then elastic sigterm": Case(
        "python-exception",
        {"rank": 0},
        STEPS
        + """[rank0]: Traceback (most recent call last):
[rank0]:   File "/app/train.py", line 88, in <module>
[rank0]:     eval_loop(model)
[rank0]: TypeError: 'NoneType' object is not iterable
W0501 10:10:05.100000 1000 torch/distributed/elastic/multiprocessing/api.py:898] Sending process 1001 closing signal SIGTERM
[rank1]: Traceback (most recent call last):
[rank1]:   File "/app/train.py", line 60, in main
[rank1]:     dist.all_reduce(x)
[rank1]: torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.cpp:77, remote process exited or there was a network error, NCCL version 2.21.5
""",
    ),
    "interleaved two tracebacks": Case(
        "python-exception",
        {"rank": 1},
        STEPS
        + """[rank1]: Traceback (most recent call last):
[rank0]: Traceback (most recent call last):
[rank1]:   File "/app/train.py", line 88, in <module>
[rank0]:   File "/app/train.py", line 60, in main
[rank0]:     dist.all_reduce(x)
[rank1]:     y = x.reshape(3, 5)
[rank1]: RuntimeError: shape '[3, 5]' is invalid for input of size 16
[rank0]: torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.cpp:77, remote process exited or there was a network error, NCCL version 2.21.5
""",
    ),
    "rendezvous lost node": Case(
        "rendezvous",
        ANYBODY,
        STEPS
        + """W0501 10:10:05.100000 1000 torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:1267] The node 'node7_1000_0' has failed to send a keep-alive heartbeat to the rendezvous 'none' due to an error of type RendezvousConnectionError.
torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed. See inner exception for details.
""",
    ),
    "jax multi files one raises": Case(
        "python-exception",
        {"rank": 5},
        {
            **{
                f"worker-{r}.log": MAXTEXT_STEPS
                + f"2025-05-01 10:10:0{r}.140058: F external/xla/xla/pjrt/distributed/client.h:80] Terminating process because the JAX distributed service detected fatal errors. This most likely indicates that another task died; see the other task logs for more details. absl::Status: UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):\n/job:jax_worker/replica:0/task:5\nThe tasks have crashed.\n"
                for r in range(8)
                if r != 5
            },
            "worker-5.log": MAXTEXT_STEPS
            + """Traceback (most recent call last):
  File "/deps/MaxText/train.py", line 700, in train_loop
    raise RuntimeError("injected")
RuntimeError: injected
""",
        },
    ),
    "jax lead reports": Case(
        "heartbeat-timeout",
        {"rank": 5},
        MAXTEXT_STEPS
        + """2025-05-01 10:10:00.140058: E external/xla/xla/tsl/distributed_runtime/coordination/coordination_service.cc:1393] The following tasks are unhealthy (stopped sending heartbeats):
/job:jax_worker/replica:0/task:5
The tasks have crashed. Check the task logs for an earlier error, or scheduler events (e.g. preemption, eviction) to debug further.
""",
    ),
    "xid then many cuda errs": Case(
        "gpu-lost",
        {"node": "node03"},
        {
            "ray_logs/node03/dmesg.txt": "[Thu May  1 10:00:58 2025] NVRM: Xid (PCI:0000:5d:00): 94, pid=4003, name=ray::Trainer, Contained: SM (0x1). RST: No, D-RST: No\n",
            **{
                f"ray_logs/node{n:02d}/worker-{'ab' * 28}-01000000-{4000 + n}.err": rank_log(n)
                + (
                    logged_traceback(
                        "2025-05-01 10:01:00",
                        "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered",
                    )
                    if n == 3
                    else logged_traceback("2025-05-01 10:01:01", REMOTE_EXITED)
                )
                for n in range(6)
            },
        },
    ),
    "oom in cgroup with torchrun": Case(
        "oom-host",
        {"rank": 3},
        {
            "kern.log": "2025-05-01T10:01:00.000000+00:00 node1 kernel: [12.3] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,oom_memcg=/k,task_memcg=/k,task=python3,pid=8003,uid=0\n2025-05-01T10:01:00.000000+00:00 node1 kernel: [12.3] Memory cgroup out of memory: Killed process 8003 (python3) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:1kB oom_score_adj:0\n",
            "train.log": rank_log(0)
            + torchrun_table(3, 3, 8003, -9, "1").replace(
                "2025-05-01_10:10:05", "2025-05-01_10:01:02"
            ),
        },
    ),
    "loss nan text warn continues": Case(
        "completed",
        ANYBODY,
        STEPS[:3000]
        + "WARNING: NaN or Inf found in input tensor. skipping step\n"
        + STEPS
        + "[after training is done] datetime: 2025-05-01 11:00:00 \n",
    ),
    "grad overflow skip": Case(
        "completed",
        ANYBODY,
        STEPS[:3000]
        + "[2025-05-01 10:00:10,000] [INFO] [loss_scaler.py:190:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768\n"
        + STEPS
        + "[after training is done] datetime: 2025-05-01 11:00:00 \n",
    ),
    "ds min loss scale": Case(
        "nan-loss",
        ANYBODY,
        STEPS
        + "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.\n",
    ),
    "hf rate limit survived": Case(
        "completed",
        ANYBODY,
        "429 Client Error: Too Many Requests for url: https://huggingface.co/api\nRetrying in 1s [Retry 1/5].\n"
        + STEPS
        + "[after training is done] datetime: 2025-05-01 11:00:00 \n",
    ),
    "deadlock futex py": Case(
        "hang",
        ANYBODY,
        rank_log(0)
        + "2025-05-01 10:21:00,000 WARNING Training hang detected: no progress for 1200 s\n",
    ),
    "placement hang": Case(
        "hang",
        ANYBODY,
        "2026-02-20 02:03:57,000 INFO Added 1000 samples to controller\n2026-02-20 02:04:57,000 INFO bundle 0, actual_bundle_index: 0, node: 10.0.0.1\n2026-02-20 03:03:57,000 INFO raylet alive\n",
    ),
    "missing key ckpt elastic": Case(
        "checkpoint-load",
        ANYBODY,
        "CheckpointLoadError: Failed to load checkpoint from '/nvme/checkpoints/x.pt': Missing required keys: {'model_state_dict'}\n",
    ),
    "nvme save failed": Case(
        "checkpoint-fs-error",
        ANYBODY,
        STEPS
        + "CheckpointSaveError: [NVME] Failed to save checkpoint to '/nvme/checkpoints/x': No space left on device\n",
    ),
    "topology below": Case(
        "topology-change",
        ANYBODY,
        STEPS
        + "TopologyChangeError: Topology change (4 -> 1 workers) failed: World size below min_nodes\n",
    ),
    "token index": Case(
        "data-loading",
        ANYBODY,
        "DataLoadingError: Failed to load data from 'data/train.jsonl': Token index file not found\n",
    ),
    "yaml": Case(
        "config",
        ANYBODY,
        'yaml.scanner.ScannerError: mapping values are not allowed here\n  in "config.yaml", line 3, column 5\n',
    ),
    "rdzv state": Case("rendezvous", ANYBODY, "RendezvousStateError: Stale state detected\n"),
    "etcd refused bare": Case(
        "etcd",
        ANYBODY,
        "ConnectionRefusedError: [Errno 111] Connection refused\nFailed to connect to etcd at localhost:2379\n",
    ),
    "dist init timeout": Case(
        "rendezvous", ANYBODY, "RuntimeError: Distributed initialization timed out\n"
    ),
    "mem snapshot": Case(
        "oom-host",
        ANYBODY,
        STEPS
        + "MemoryLimitExceeded: Cannot save snapshot: 2048.0MB required, but only 512.0MB available\n",
    ),
    **{
        f"horovod waits for {about}": Case("hang", culprit, minutes() + _horovod(missing))
        for about, culprit, missing in (
            ("one rank", {"rank": 3}, "3: [allreduce.grad_1]"),
            ("two ranks", NOBODY, "3: [allreduce.grad_1]\n5: [allreduce.grad_1]"),
        )
    },
    "a server that answers no more, without frames": Case(
        "python-exception",
        ANYBODY,
        minutes()
        + "2025-03-01 10:12:00 ERROR engine check\n"
        + "requests.exceptions.ConnectionError: HTTPConnectionPool(host='10.2.0.8', port=15000): Max retries exceeded with url: /health_generate (Caused by NewConnectionError('Failed to establish a new connection: [Errno 111] Connection refused'))\n",
    ),
    "a judge's answer that is no JSON": Case(
        "python-exception",
        ANYBODY,
        minutes()
        + 'Traceback (most recent call last):\n  File "/opt/reward/judge.py", line 66, in score\n    return json.loads(r.text)\njson.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)\n',
    ),
}

# ruff: noqa: E501 - log lines are as long as they are
"""Jobs whose logs are spread over ranks, nodes and attempts."""

from __future__ import annotations

from tests.support.log_cases.parts import (
    ANYBODY,
    GLOO_CLOSED,
    REMOTE_EXITED,
    STEPS,
    STORE_RESET,
    Case,
    logged_traceback,
    rank_log,
    torchrun_table,
)

CASES: dict[str, Case] = {
    "a local rank of several nodes is no rank": Case(
        "signal-kill",
        {"rank": None, "pid": 8003},
        "NNODES=4\n"
        + STEPS
        + "E0501 10:10:07.100000 1000 torch/distributed/elastic/multiprocessing/api.py:870] failed (exitcode: -11) local_rank: 3 (pid: 8003) of binary: /usr/bin/python3\n",
    ),
    "a rank by Ray Train's list of its workers": Case(
        "actor-fail",
        {"rank": 3, "pid": 4713, "ip": "10.0.0.3"},
        "".join(
            f"(TrainController pid=100) - (ip=10.0.0.{2 + rank // 2}, pid={4710 + rank}) world_rank={rank}, local_rank={rank % 2}, node_rank={rank // 2}\n"
            for rank in range(4)
        )
        + "(RayTrainWorker pid=4711, ip=10.0.0.2) step 3 loss 2.0 time 1s\n"
        + "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
        + "\tclass_name: RayTrainWorker\n\tpid: 4713\n\tip: 10.0.0.3\n"
        + "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR\n",
    ),
    "rank files 3 first": Case(
        "python-exception",
        {"rank": 3},
        {
            **{
                f"rank-{r}.log": rank_log(r)
                + logged_traceback("2025-05-01 10:01:02", REMOTE_EXITED)
                for r in range(8)
                if r != 3
            },
            "rank-3.log": rank_log(3)
            + logged_traceback("2025-05-01 10:01:00", "ZeroDivisionError: float division by zero"),
        },
    ),
    "rank files loud 0": Case(
        "oom-gpu",
        {"rank": 6},
        {
            **{
                f"rank-{r}.log": rank_log(r)
                + logged_traceback("2025-05-01 10:01:02", GLOO_CLOSED) * 5
                for r in range(8)
                if r != 6
            },
            "rank-6.log": rank_log(6)
            + logged_traceback(
                "2025-05-01 10:01:00",
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 6 has a total capacity of 79.11 GiB of which 10.00 MiB is free.",
            ),
        },
    ),
    "rank killed silently": Case(
        "transport-lost",
        ANYBODY,
        {
            **{
                f"rank-{r}.log": rank_log(r)
                + logged_traceback("2025-05-01 10:01:02", REMOTE_EXITED)
                + STORE_RESET
                + "\n"
                for r in range(8)
                if r != 6
            },
            "rank-6.log": rank_log(6),
        },
    ),
    "torchrun folders": Case(
        "python-exception",
        {"rank": 2},
        {
            **{
                f"none_abc/attempt_0/{r}/stderr.log": rank_log(r)
                + (
                    f"[rank{r}]:[E501 10:11:02.0 ProcessGroupNCCL.cpp:632] [Rank {r}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600031 milliseconds before timing out.\n"
                    if r != 2
                    else logged_traceback(
                        "2025-05-01 10:01:00",
                        "AttributeError: 'NoneType' object has no attribute 'shape'",
                    )
                )
                for r in range(4)
            }
        },
    ),
    "ray session dirs": Case(
        "python-exception",
        {"pid": 4005, "node": "node05"},
        {
            **{
                f"ray_logs/node{n:02d}/session_latest/logs/worker-{'ab' * 28}-01000000-{4000 + n}.err": rank_log(
                    n
                )
                + (
                    logged_traceback(
                        "2025-05-01 10:01:00",
                        "RuntimeError: The size of tensor a (4) must match the size of tensor b (5) at non-singleton dimension 0",
                    )
                    if n == 5
                    else f"[rank{n}]:[E501 10:11:00.0 ProcessGroupNCCL.cpp:632] [Rank {n}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600031 milliseconds before timing out.\n"
                )
                for n in range(8)
            },
            "job.log": "2025-05-01 10:00:00,000 INFO start\n(Trainer pid=4005, ip=10.0.0.5) step: 3\n2025-05-01 10:11:20,000 ERROR ray.exceptions.RayTaskError(DistBackendError): ray::Trainer.step() (pid=4001, ip=10.0.0.1)\n",
        },
    ),
    "hang ray data": Case(
        "hang",
        ANYBODY,
        {"job.log": rank_log(0) + "2025-05-01 10:31:00,000 INFO worker still alive\n" * 3},
    ),
    "table err multi": Case(
        "python-exception",
        {"rank": 9, "node": "node-b"},
        STEPS
        + """[rank9]: Traceback (most recent call last):
[rank9]:   File "train.py", line 4, in <module>
[rank9]: ValueError: expected sequence of length 8 at dim 1 (got 7)
E0501 10:10:07.100000 1000 torch/distributed/elastic/multiprocessing/api.py:870] failed (exitcode: 1) local_rank: 1 (pid: 8009) of binary: /usr/bin/python3
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2025-05-01_10:10:06
  host      : node-b
  rank      : 10 (local_rank: 2)
  exitcode  : -15 (pid: 8010)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 8010
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2025-05-01_10:10:05
  host      : node-b
  rank      : 9 (local_rank: 1)
  exitcode  : 1 (pid: 8009)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
""",
    ),
    "restart then completed": Case(
        "completed",
        ANYBODY,
        STEPS[:4000]
        + logged_traceback("2025-05-01 10:00:20", "ConnectionError: lost")
        + "[2025-05-01 10:00:25] loading checkpoint from /ckpt at iteration 15\n"
        + STEPS[3000:]
        + "[after training is done] datetime: 2025-05-01 11:00:00 \n",
    ),
    "sglang scheduler exc": Case(
        "oom-gpu",
        ANYBODY,
        """[2025-05-01 10:00:00 TP0] Load weight begin. avail mem=78.00 GB
[2025-05-01 10:00:20 TP3] Scheduler hit an exception: Traceback (most recent call last):
  File "/sgl/managers/scheduler.py", line 2000, in run_scheduler_process
    scheduler = Scheduler(server_args, port_args, gpu_id, tp_rank, dp_rank)
  File "/sgl/model_executor/cuda_graph_runner.py", line 300, in __init__
    raise Exception(
Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 20.00 MiB.
[2025-05-01 10:00:21] Received sigquit from a child process. It usually means the child failed.
Killed
""",
    ),
    "megatron stragglers + sigterm": Case(
        "signal-kill",
        {"rank": 9},
        STEPS + torchrun_table(9, 1, 8009, -9, "b").replace("rank      : 9", "rank      : 9"),
    ),
    "bad node stdout mix 2 attempts": Case(
        "oom-host",
        ANYBODY,
        STEPS
        + "[Thu May  1 10:00:50 2025] Memory cgroup out of memory: Killed process 8123 (python) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:1kB oom_score_adj:0\n"
        + torchrun_table(4, 4, 8123, -9, "x"),
    ),
    "hf trainer storage": Case(
        "checkpoint-fs-error",
        ANYBODY,
        STEPS
        + """Traceback (most recent call last):
  File "/usr/lib/python3/transformers/trainer.py", line 3000, in _save_checkpoint
    self.save_model(output_dir, _internal_call=True)
  File "/usr/lib/python3/safetensors/torch.py", line 286, in save_file
    serialize_file(_flatten(tensors), filename, metadata=metadata)
safetensors_rust.SafetensorError: Error while serializing: IoError(Os { code: 28, kind: StorageFull, message: "No space left on device" })
""",
    ),
    "s3 403": Case(
        "checkpoint-fs-error",
        ANYBODY,
        STEPS
        + """Traceback (most recent call last):
  File "ckpt.py", line 30, in save
    client.upload_file(path, bucket, key)
boto3.exceptions.S3UploadFailedError: Failed to upload /tmp/x.pt to bucket/ckpt/x.pt: An error occurred (AccessDenied) when calling the PutObject operation: Access Denied
""",
    ),
    "orbax fs": Case(
        "checkpoint-fs-error",
        ANYBODY,
        "".join(
            f"completed step: {i}, seconds: 10.1, TFLOP/s/device: 200.1, Tokens/s/device: 1000.0, total_weights: 100, loss: 5.{i}\n"
            for i in range(40)
        )
        + """Traceback (most recent call last):
  File "/deps/MaxText/checkpointing.py", line 300, in save_checkpoint
  File "orbax/checkpoint/_src/serialization/type_handlers.py", line 900, in _serialize
ValueError: UNKNOWN: Error writing "gs://b/ckpt/40/d/abc" [Http response code: 503]
""",
    ),
    "cublas": Case(
        "python-exception",
        {"rank": 2},
        STEPS
        + """[rank2]: Traceback (most recent call last):
[rank2]:   File "m.py", line 114, in forward
[rank2]: RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx( handle, opa, opb)`
""",
    ),
    "cuda not avail": Case(
        "gpu-lost",
        ANYBODY,
        """Traceback (most recent call last):
  File "train.py", line 4, in <module>
RuntimeError: No CUDA GPUs are available
""",
    ),
    "nvml mismatch": Case(
        "gpu-lost",
        ANYBODY,
        """Failed to initialize NVML: Driver/library version mismatch
Traceback (most recent call last):
  File "train.py", line 4, in <module>
RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() that might have already set an error? Error 803: system has unsupported display driver / cuda driver combination
""",
    ),
}

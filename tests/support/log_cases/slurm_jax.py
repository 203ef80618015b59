# ruff: noqa: E501 - log lines are as long as they are
"""JAX on Slurm, its launcher and its storage, and what the kernel says of links."""

from __future__ import annotations

from tests.support.log_cases.parts import ANYBODY, NOBODY, STEPS, Case, watchdog

HEADER = "PASSTHROUGH_ARGS=model_name=llama2-70b steps=100 checkpoint_period=50\nNNODES=8\nNODE_LIST=chi[1-8]\nSLURM_JOB_ID=1234\n"


def srun(ranks: int = 8, count: int = 40) -> str:
    """MaxText under ``srun --label``."""
    return "".join(
        f"{r}: completed step: {i}, seconds: 10.1, TFLOP/s/device: 200.1, Tokens/s/device: 1000.0, total_weights: 100, loss: 5.{i}\n"
        for i in range(count)
        for r in (range(ranks) if i % 10 == 0 else [0])
    )


CASES: dict[str, Case] = {
    "hb multi tasks srun": Case(
        "heartbeat-timeout",
        {"rank": 3},
        HEADER
        + srun()
        + "0: E0325 20:57:27.620000 140 coordination_service.cc:1393] /job:jax_worker/replica:0/task:3 has been set to ERROR in coordination service: UNAVAILABLE: Task /job:jax_worker/replica:0/task:3 heartbeat timeout. This indicates that the remote task has failed, got preempted, or crashed unexpectedly.\n"
        + "".join(
            f"{r}: F0325 20:57:29.620000 140 client.h:80] Terminating process because the JAX distributed service detected fatal errors. absl::Status: UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):\n{r}: /job:jax_worker/replica:0/task:3\n"
            for r in range(8)
            if r != 3
        )
        + "srun: error: chi4: task 3: Aborted (core dumped)\nslurmstepd: error: *** STEP 1234.0 ON chi1 CANCELLED AT 2025-03-25T20:57:40 ***\n",
    ),
    "memory access fault amd": Case(
        "illegal-memory-access",
        {"rank": 5},
        HEADER
        + srun()
        + "5: Memory access fault by GPU node-3 (Agent handle: 0x55d) on address 0x7f0. Reason: Page not present or supervisor privilege.\nsrun: error: chi6: task 5: Aborted (core dumped)\n0: E0325 20:57:27.620000 140 coordination_service.cc:1393] /job:jax_worker/replica:0/task:5 has been set to ERROR in coordination service: UNAVAILABLE: Task /job:jax_worker/replica:0/task:5 heartbeat timeout.\n",
    ),
    "hip oom": Case(
        "oom-gpu",
        {"rank": 2},
        STEPS
        + "[rank2]: torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB. GPU 2 has a total capacity of 191.98 GiB of which 1.00 GiB is free.\n",
    ),
    "hsa resources": Case(
        "oom-gpu",
        ANYBODY,
        HEADER
        + srun()
        + "4: :0:rocdevice.cpp :2724: 1234 us: [pid:1 tid:2] Callback: Queue 0x7f aborting with error : HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate the necessary resources. code: 0x1008\nsrun: error: chi5: task 4: Aborted (core dumped)\n",
    ),
    "orbax restore": Case(
        "checkpoint-load",
        ANYBODY,
        HEADER
        + '0: Traceback (most recent call last):\n0:   File "/deps/MaxText/checkpointing.py", line 300, in load_state_if_possible\n0:   File "/usr/lib/python3/orbax/checkpoint/_src/checkpointers/checkpointer.py", line 200, in restore\n0: FileNotFoundError: Checkpoint structure file does not exist at /ckpt/1000/items.\n',
    ),
    "orbax shape mismatch": Case(
        "checkpoint-load",
        ANYBODY,
        HEADER
        + '0: Traceback (most recent call last):\n0:   File "/usr/lib/python3/orbax/checkpoint/_src/serialization/type_handlers.py", line 900, in deserialize\n0: ValueError: User-provided restore item and on-disk value metadata tree structures do not match\n',
    ),
    "xla compile oom hbm": Case(
        "oom-gpu",
        ANYBODY,
        HEADER
        + "0: jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 17.20G of 15.75G hbm. Exceeded hbm capacity by 1.45G.\n",
    ),
    "oom kill srun cascade": Case(
        "oom-host",
        {"node": "chi3"},
        HEADER
        + srun()
        + "slurmstepd: error: Detected 1 oom_kill event in StepId=1234.0. Some of the step tasks have been OOM Killed.\nsrun: error: chi3: task 2: Out Of Memory\nsrun: Terminating StepId=1234.0\n0: E0325 20:57:27.620000 140 coordination_service.cc:1393] /job:jax_worker/replica:0/task:2 has been set to ERROR in coordination service: UNAVAILABLE: Task /job:jax_worker/replica:0/task:2 heartbeat timeout.\n",
    ),
    "slow compile harmless": Case(
        "unknown-death",
        NOBODY,
        HEADER
        + "0: 2025-03-25 20:57:27.620000: E external/xla/xla/service/slow_operation_alarm.cc:73] \n0: ********************************\n0: [Compiling module jit_train_step] Very slow compile? If you want to file a bug, run with envvar XLA_FLAGS=--xla_dump_to=/tmp/foo and attach the results.\n0: ********************************\n"
        + srun(),
    ),
    "nccl warn decoy + idx": Case(
        "python-exception",
        {"rank": 6},
        HEADER
        + 'chi1:12:34 [0] NCCL WARN MSCCL++: Cannot open libmscclpp\nchi1:12:34 [0] NCCL WARN Missing "iommu=pt" from kernel command line which can lead to system instablity or hang!\n'
        + srun()
        + '6: Traceback (most recent call last):\n6:   File "/deps/MaxText/train.py", line 700, in train_loop\n6:     x = y[3]\n6: IndexError: list index out of range\nsrun: error: chi7: task 6: Exited with exit code 1\n',
    ),
    "gcs unavailable": Case(
        "storage",
        ANYBODY,
        HEADER
        + srun()
        + "3: google.api_core.exceptions.ServiceUnavailable: 503 GET https://storage.googleapis.com/storage/v1/b/x/o: We encountered an internal error. Please try again.\n",
    ),
    "grain data": Case(
        "data-loading",
        {"rank": 4},
        HEADER
        + srun()
        + '4: Traceback (most recent call last):\n4:   File "/usr/lib/python3/site-packages/grain/_src/python/data_loader.py", line 300, in __next__\n4: ValueError: Record 5 is corrupted\n',
    ),
    "ray cluster never full": Case(
        "rendezvous",
        ANYBODY,
        '2025-03-25 20:00:00,000 INFO Waiting for 8 nodes to join the Ray cluster, 7 so far\n2025-03-25 20:10:00,000 INFO Waiting for 8 nodes to join the Ray cluster, 7 so far\n2025-03-25 20:30:00,000 ERROR Timed out waiting for nodes: 7 of 8 joined\nTraceback (most recent call last):\n  File "x.py", line 3, in <module>\nTimeoutError: Timed out waiting for nodes: 7 of 8 joined\n',
    ),
    "segfault python": Case(
        "signal-kill",
        {"rank": 2},
        HEADER
        + srun()
        + '2: Fatal Python error: Segmentation fault\n2: \n2: Current thread 0x00007f (most recent call first):\n2:   File "/x.py", line 3 in f\nsrun: error: chi3: task 2: Segmentation fault (core dumped)\n',
    ),
    "bus err shm": Case(
        "signal-kill",
        {"rank": 2},
        HEADER + srun() + "srun: error: chi3: task 2: Bus error (core dumped)\n",
    ),
    "nan maxtext": Case(
        "nan-loss",
        NOBODY,
        HEADER
        + "".join(
            f"0: completed step: {i}, seconds: 10.1, TFLOP/s/device: 200.1, Tokens/s/device: 1000.0, total_weights: 100, loss: {'nan' if i > 30 else '5.1'}\n"
            for i in range(40)
        ),
    ),
    "completed maxtext shutdown noise": Case(
        "soft-success",
        ANYBODY,
        HEADER
        + srun(8, 100)
        + "0: E0325 20:57:27.620000 140 coordination_service_agent.cc:700] Failed to disconnect from coordination service with status: DEADLINE_EXCEEDED: Barrier timed out. Id: Shutdown::123\nsrun: error: chi3: task 2: Aborted (core dumped)\n",
    ),
    "link down then timeouts": Case(
        "link-down",
        ANYBODY,
        {
            "dmesg-chi3.log": "[Tue Mar 25 20:50:00 2025] mlx5_core 0000:1a:00.0 ens1np0: Link down\n",
            "job.log": STEPS.replace("2025-05-01 10:00", "2025-03-25 20:49")
            + "".join(watchdog(r, t="21:00:00.0").replace("E501", "E325") for r in range(8)),
        },
    ),
    "nvlink sxid": Case(
        "gpu-lost",
        ANYBODY,
        {
            "dmesg-chi3.log": "[Tue Mar 25 20:50:00 2025] nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 20034, Fatal, Link 30 LTSSM Fault Up\n",
            "job.log": STEPS.replace("2025-05-01 10:00", "2025-03-25 20:49")
            + "".join(watchdog(r, t="21:00:00.0").replace("E501", "E325") for r in range(8)),
        },
    ),
    "hung task storage": Case(
        "nccl-timeout",
        ANYBODY,
        {
            "dmesg-chi3.log": "[Tue Mar 25 20:55:00 2025] INFO: task python3:4003 blocked for more than 120 seconds.\n",
            "job.log": STEPS.replace("2025-05-01 10:00", "2025-03-25 20:49")
            + "".join(watchdog(r, t="21:00:00.0").replace("E501", "E325") for r in range(8)),
        },
    ),
}

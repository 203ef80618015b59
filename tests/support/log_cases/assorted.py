# ruff: noqa: E501 - log lines are as long as they are
"""Configurations, rights, versions, limits and numbers that went wrong."""

from __future__ import annotations

from tests.support.log_cases.parts import (
    ANYBODY,
    NOBODY,
    STEPS,
    Case,
    torchrun_table,
    watchdog,
)

CASES: dict[str, Case] = {
    "hf trainer cuda oom traceback": Case(
        "oom-gpu",
        ANYBODY,
        "".join(
            f"{{'loss': 1.{i}, 'grad_norm': 0.5, 'learning_rate': 5e-05, 'epoch': 0.{i}}}\n"
            for i in range(10, 30)
        )
        + 'Traceback (most recent call last):\n  File "/w/run_clm.py", line 3, in <module>\n    trainer.train()\n  File "/usr/lib/python3/site-packages/transformers/trainer.py", line 2245, in train\n    return inner_training_loop(\ntorch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 250.00 MiB. GPU 0 has a total capacity of 23.68 GiB of which 200.00 MiB is free.\n  4%|▍         | 20/500 [00:44<17:47,  2.22s/it]\n',
    ),
    "wandb usage error": Case(
        "python-exception",
        ANYBODY,
        'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    wandb.init()\nwandb.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[your_api_key])\n',
    ),
    "torchvision 0 samples": Case(
        "data-loading",
        ANYBODY,
        "ValueError: num_samples should be a positive integer value, but got num_samples=0\n",
    ),
    "deepspeed config": Case(
        "config",
        ANYBODY,
        "AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 32 != 4 * 1 * 4\n",
    ),
    "hydra missing": Case(
        "config",
        ANYBODY,
        "hydra.errors.MissingConfigException: Cannot find primary config 'x'. Check that it's in your config search path.\n",
    ),
    "file not found data": Case(
        "python-exception",
        ANYBODY,
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'\n",
    ),
    "permission ckpt": Case(
        "config",
        ANYBODY,
        STEPS
        + "Traceback (most recent call last):\n  File \"t.py\", line 3, in save_checkpoint\n    torch.save(x, p)\nPermissionError: [Errno 13] Permission denied: '/ckpt/step_100.pt'\n",
    ),
    "read-only": Case(
        "storage",
        ANYBODY,
        STEPS + "OSError: [Errno 30] Read-only file system: '/ckpt/step_100.pt'\n",
    ),
    "too many files": Case(
        "config", ANYBODY, STEPS + "OSError: [Errno 24] Too many open files: '/data/x'\n"
    ),
    "megatron nccl abort": Case(
        "nccl-timeout",
        ANYBODY,
        STEPS
        + "[rank3]:[E501 10:10:00.0 ProcessGroupNCCL.cpp:1414] [PG 5 Rank 3] First PG on this rank to signal dumping.\n"
        + watchdog(3),
    ),
    "gpu lost nvml": Case(
        "gpu-lost",
        ANYBODY,
        STEPS
        + "Unable to determine the device handle for GPU0000:A1:00.0: GPU is lost.  Reboot the system to recover this GPU\n",
    ),
    "cuda init": Case(
        "gpu-lost",
        ANYBODY,
        "RuntimeError: CUDA driver initialization failed, you might not have a CUDA gpu.\n",
    ),
    "version mismatch torch cuda": Case(
        "python-exception",
        ANYBODY,
        "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).\n",
    ),
    "ray version": Case(
        "python-exception",
        ANYBODY,
        "RuntimeError: Version mismatch: The cluster was started with:\n    Ray: 2.9.0\n    Python: 3.10.12\nThis process on node 10.0.0.2 was started with:\n    Ray: 2.10.0\n    Python: 3.10.13\n",
    ),
    "ray oom plasma": Case(
        "storage",
        ANYBODY,
        "ray.exceptions.ObjectStoreFullError: Failed to put object ffff in object store because it is full. Object size is 100 bytes.\n",
    ),
    "ray runtime env": Case(
        "config",
        ANYBODY,
        "ray.exceptions.RuntimeEnvSetupError: Failed to set up runtime environment.\nCould not create the actor because its associated runtime env failed to be created.\n",
    ),
    "cuda assert then storm": Case(
        "python-exception",
        {"rank": 11},
        STEPS
        + "[rank11]: RuntimeError: CUDA error: device-side assert triggered\n"
        + "".join(watchdog(r) for r in range(32) if r != 11)
        + torchrun_table(0, 0, 77, -6, "1"),
    ),
    "sigbus table": Case("signal-kill", {"rank": 4}, STEPS + torchrun_table(4, 4, 4321, -7, "007")),
    "quick preempt requeue": Case(
        "preempted",
        ANYBODY,
        STEPS
        + 'slurmstepd: error: *** JOB 5 ON n1 CANCELLED AT 2025-05-01T10:01:05 DUE TO PREEMPTION ***\nslurmstepd: error: *** STEP 5.0 ON n1 CANCELLED AT 2025-05-01T10:01:05 DUE TO PREEMPTION ***\n[rank0]: Traceback (most recent call last):\n[rank0]:   File "x.py", line 1, in <module>\n[rank0]: KeyboardInterrupt\n',
    ),
    "k8s backoff evicted disk": Case(
        "preempted",
        ANYBODY,
        STEPS
        + "Warning  Evicted  2m  kubelet  The node was low on resource: memory. Container trainer was using 100Gi, which exceeds its request of 50Gi.\n",
    ),
    "lightning ckpt finish": Case(
        "completed",
        ANYBODY,
        "Epoch 9: 100%|██████████| 500/500 [00:28<07:39,  1.13it/s, v_num=0, train_loss=2.590]\n`Trainer.fit` stopped: `max_epochs=10` reached.\n",
    ),
    "nan inf check": Case(
        "nan-loss", ANYBODY, STEPS + "FloatingPointError: Loss is infinite or NaN!\n"
    ),
    "loss diverged exit": Case("nan-loss", ANYBODY, STEPS + "Loss is nan, stopping training\n"),
    "heartbeat torch elastic nonfatal": Case(
        "completed",
        NOBODY,
        STEPS
        + "W0501 10:10:05.100000 1000 torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:1267] The node 'node7_1000_0' has failed to shutdown the rendezvous 'none' due to an error of type RendezvousConnectionError.\n[after training is done] datetime: 2025-05-01 11:00:00 \n",
    ),
}

# ruff: noqa: E501 - log lines are as long as they are
"""Failures that Ray, Kubernetes, the kernel, data loaders and configurations report."""

from __future__ import annotations

from tests.support.log_cases.parts import (
    ANYBODY,
    NOBODY,
    STEPS,
    Case,
    watchdog,
)

CASES: dict[str, Case] = {
    "storm after sigkill table, ray": Case(
        "actor-fail",
        {"pid": 16424},
        "".join(
            f"(WorkerDict pid={5000 + i}, ip=10.0.0.{i}) step:{i} - actor/loss:0.1 - timing_s/step:10.0\n"
            for i in range(9)
        )
        + """Traceback (most recent call last):
  File "/w/verl/trainer/main_ppo.py", line 64, in run_ppo
    ray.get(runner.run.remote(config))
ray.exceptions.RayTaskError(ActorDiedError): ray::TaskRunner.run() (pid=2222, ip=10.0.0.1)
  File "/w/verl/trainer/ppo/ray_trainer.py", line 1102, in fit
    gen_batch_output = self.actor_rollout_wg.generate_sequences(gen_batch)
  File "/w/verl/single_controller/ray/base.py", line 51, in __call__
    output = ray.get(output)
ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.
	class_name: create_colocated_worker_cls.<locals>.WorkerDict
	actor_id: 17f730ef04a3a7406b421ea101000000
	pid: 16424
	name: wd6rCqWorkerDict_0:5
	namespace: bd542de1-90f2-46ba-8ece-bfcd459a3150
	ip: 11.11.12.211
The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file. There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer due to high memory usage. (2) ray stop --force is called. (3) The worker is crashed unexpectedly due to SIGSEGV or other unexpected errors.
""",
    ),
    "actor oom kernel": Case(
        "oom-host",
        {"pid": 16424},
        {
            "driver.log": "2025-05-01 10:00:01,000 INFO x step: 1 loss: 2.0\n2025-05-01 10:05:00,000 ERROR ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n\tclass_name: Trainer\n\tpid: 16424\n\tip: 10.0.0.3\nThe actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR\n",
            "10.0.0.3/dmesg.log": "[Thu May  1 10:04:58 2025] ray::Trainer invoked oom-killer: gfp_mask=0x100cca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=0\n[Thu May  1 10:04:58 2025] Out of memory: Killed process 16424 (ray::Trainer) total-vm:238448443kB, anon-rss:237171122kB, file-rss:124kB, shmem-rss:0kB, UID:0 pgtables:46700kB oom_score_adj:0\n",
        },
    ),
    "actor userland exc": Case(
        "python-exception",
        {"pid": 777},
        """2025-05-01 10:00:01,000 INFO x step: 1 loss: 2.0
Traceback (most recent call last):
  File "driver.py", line 30, in <module>
    ray.get([w.step.remote() for w in workers])
ray.exceptions.RayTaskError(ValueError): ray::Trainer.step() (pid=777, ip=10.0.0.7, actor_id=abc, repr=<driver.Trainer object at 0x7f>)
  File "driver.py", line 12, in step
    raise ValueError("bad batch")
ValueError: bad batch
""",
    ),
    "actor exit intended": Case(
        "actor-fail",
        ANYBODY,
        """2025-05-01 10:00:01,000 INFO x step: 1 loss: 2.0
ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.
	class_name: Trainer
	pid: 900
	ip: 10.0.0.3
The actor is dead because its worker process has died. Worker exit type: INTENDED_USER_EXIT Worker exit detail: Worker exits by an user request. exit_actor() is called.
""",
    ),
    "ray node died": Case(
        "node-fail",
        {"node": "10.0.0.9"},
        """2025-05-01 10:00:01,000 INFO x step: 1 loss: 2.0
(raylet, ip=10.0.0.9) The node with node id: 4d21 and address: 10.0.0.9 and node name: 10.0.0.9 has been marked dead because the detector has missed too many heartbeats from it. This can happen when a 	(1) raylet crashes unexpectedly (OOM, etc.)
	(2) raylet has lagging heartbeats due to slow network or busy workload.
ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.
	class_name: Trainer
	pid: 900
	ip: 10.0.0.9
The actor is dead because its node has died. Node Id: 4d21
""",
    ),
    "dataloader killed": Case(
        "data-loading",
        ANYBODY,
        STEPS
        + """Traceback (most recent call last):
  File "train.py", line 40, in <module>
    for batch in loader:
  File "/usr/lib/python3/torch/utils/data/dataloader.py", line 1133, in _try_get_data
RuntimeError: DataLoader worker (pid 8123) is killed by signal: Killed.
""",
    ),
    "dataloader bus": Case(
        "data-loading",
        ANYBODY,
        STEPS
        + """ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).
Traceback (most recent call last):
  File "train.py", line 40, in <module>
RuntimeError: DataLoader worker (pid 8123) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit.
""",
    ),
    "dataloader worker exc": Case(
        "data-loading",
        {"rank": 3},
        STEPS
        + """[rank3]: Traceback (most recent call last):
[rank3]:   File "train.py", line 40, in <module>
[rank3]:     for batch in loader:
[rank3]:   File "/usr/lib/python3/torch/_utils.py", line 733, in reraise
[rank3]:     raise exception
[rank3]: FileNotFoundError: Caught FileNotFoundError in DataLoader worker process 2.
[rank3]: Original Traceback (most recent call last):
[rank3]:   File "/usr/lib/python3/torch/utils/data/_utils/worker.py", line 351, in _worker_loop
[rank3]:     data = fetcher.fetch(index)
[rank3]:   File "dataset.py", line 40, in __getitem__
[rank3]:     return Image.open(path)
[rank3]: FileNotFoundError: [Errno 2] No such file or directory: '/data/imagenet/x.jpg'
""",
    ),
    "nan loss error": Case(
        "nan-loss",
        ANYBODY,
        STEPS
        + """[rank7]: Traceback (most recent call last):
[rank7]:   File "/w/megatron/core/rerun_state_machine.py", line 300, in validate_result
[rank7]: RuntimeError: Unexpected result nan (message='found NaN in local forward loss calculation')
""",
    ),
    "nan quiet": Case(
        "nan-loss",
        NOBODY,
        "".join(
            f"[2025-05-01 10:{i // 60:02d}:{i % 60:02d}] step {i} loss {5.0 / i if i < 40 else float('nan')} time 1.0s\n"
            for i in range(1, 90)
        ),
    ),
    "config omega": Case(
        "config",
        ANYBODY,
        """Error executing job with overrides: ['trainer.n_gpus=8']
Traceback (most recent call last):
omegaconf.errors.ConfigAttributeError: Key 'n_gpus' is not in struct
    full_key: trainer.n_gpus
""",
    ),
    "argparse": Case(
        "config",
        ANYBODY,
        """usage: pretrain_gpt.py [-h] [--num-layers NUM_LAYERS]
pretrain_gpt.py: error: unrecognized arguments: --foo-bar 3
""",
    ),
    "assert megatron tp": Case(
        "config",
        ANYBODY,
        """Traceback (most recent call last):
  File "/w/megatron/training/arguments.py", line 220, in validate_args
    assert args.world_size % total_model_size == 0, (
AssertionError: world size (7) is not divisible by total_model_size (8)
""",
    ),
    "hf gated": Case(
        "config",
        ANYBODY,
        """OSError: You are trying to access a gated repo.
Make sure to have access to it at https://huggingface.co/meta-llama/Llama-3.1-8B.
401 Client Error. (Request ID: Root=1-66)
""",
    ),
    "nfs stale": Case(
        "storage",
        ANYBODY,
        STEPS
        + """Traceback (most recent call last):
  File "train.py", line 40, in <module>
OSError: [Errno 116] Stale file handle: '/mnt/nfs/data/shard_0001.bin'
""",
    ),
    "io error data": Case(
        "storage",
        ANYBODY,
        STEPS
        + """[rank4]: Traceback (most recent call last):
[rank4]:   File "/w/megatron/core/datasets/indexed_dataset.py", line 300, in get
[rank4]: OSError: [Errno 5] Input/output error
""",
    ),
    "etcd": Case(
        "etcd",
        ANYBODY,
        """ERROR 2025-05-01 10:00:00,000 etcd_rendezvous: Failed to connect to etcd
Traceback (most recent call last):
  File "/usr/lib/python3/torch/distributed/elastic/rendezvous/etcd_rendezvous.py", line 100, in create_rdzv_handler
etcd.EtcdConnectionFailed: Connection to etcd failed due to MaxRetryError("HTTPConnectionPool(host='localhost', port=2379): Max retries exceeded with url: /version (Caused by NewConnectionError('<urllib3.connection.HTTPConnection object>: Failed to establish a new connection: [Errno 111] Connection refused'))")
""",
    ),
    "topology": Case(
        "topology-change",
        ANYBODY,
        """Traceback (most recent call last):
  File "deepspeed/runtime/engine.py", line 2700, in load_checkpoint
deepspeed.runtime.zero.utils.ZeRORuntimeException: The checkpoint being loaded used a DP world size of 16 but the current world size is 8. Automatic adjustment of ZeRO's optimizer state partitioning with a new world size is not currently supported.
""",
    ),
    "hang then scancel": Case(
        "hang",
        ANYBODY,
        STEPS
        + "[2025-05-01 10:40:00] some heartbeat line\nslurmstepd: error: *** JOB 123456 ON node001 CANCELLED AT 2025-05-01T10:45:05 ***\nsrun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n",
    ),
    "throughput": Case(
        "throughput-degradation",
        NOBODY,
        "".join(
            f"[2025-05-01 {10 + (i * 2) // 3600:02d}:{(i * 2) % 3600 // 60:02d}:{(i * 2) % 60:02d}] step {i} loss 2.0 time {1.0 if i < 150 else 1.9}s\n"
            for i in range(1, 300)
        ),
    ),
    "gloo connect fail": Case(
        "nccl-init",
        ANYBODY,
        """Traceback (most recent call last):
  File "train.py", line 10, in <module>
    dist.init_process_group("gloo")
RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error
RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error
""",
    ),
    "wd got stuck gil": Case(
        "heartbeat-timeout",
        {"rank": 7},
        STEPS
        + """[rank7]:[E626 10:14:36.393067540 ProcessGroupNCCL.cpp:1743] [PG ID 0 PG GUID 0(default_pg) Rank 7] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives. This typically indicates a NCCL/CUDA API (e.g., CudaEventDestroy) hang blocking the watchdog, and could be triggered by another thread holding the GIL inside a CUDA api (for example, CudaEventDestroy), or other deadlock-prone behaviors.
[rank7]:[F626 10:24:36.393067540 ProcessGroupNCCL.cpp:1557] [PG ID 0 PG GUID 0(default_pg) Rank 7] [PG ID 0 PG GUID 0(default_pg) Rank 7] Terminating the process after attempting to dump debug info, due to ProcessGroupNCCL watchdog hang.
""",
    ),
    "k8s evict": Case(
        "preempted",
        ANYBODY,
        STEPS
        + """Warning  Evicted  kubelet  The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 5Gi. Container pytorch was using 300Gi
""",
    ),
    "k8s oomkilled": Case(
        "oom-host",
        ANYBODY,
        STEPS
        + """    Last State:     Terminated
      Reason:       OOMKilled
      Exit Code:    137
""",
    ),
    "nvlink xid 74": Case(
        "gpu-lost",
        ANYBODY,
        {
            "kern.log": "2025-05-01T10:00:30.000000+00:00 gpu017 kernel: [ 1234.567890] NVRM: Xid (PCI:0000:4e:00): 74, pid=12345, name=python, NVLink: fatal error detected on link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)\n",
            "job.log": STEPS + "".join(watchdog(r, t="10:10:31.000000000") for r in range(16)),
        },
    ),
    "xid 31 app": Case(
        "illegal-memory-access",
        {"rank": 3, "gpu": "0000:4e:00"},
        {
            "kern.log": "2025-05-01T10:00:30.000000+00:00 gpu017 kernel: [ 1234.567890] NVRM: Xid (PCI:0000:4e:00): 31, pid=12345, name=python, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f66_b4000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ\n",
            "job.log": STEPS
            + '[rank3]: Traceback (most recent call last):\n[rank3]:   File "train.py", line 4, in <module>\n[rank3]: torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n',
        },
    ),
    "amd": Case(
        "gpu-lost",
        ANYBODY,
        {
            "dmesg": "[Thu May  1 10:00:40 2025] amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!\n[Thu May  1 10:00:40 2025] amdgpu 0000:c1:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=100, emitted seq=102\n",
            "job.log": STEPS + "[rank3]: RuntimeError: HIP error: unspecified launch failure\n",
        },
    ),
    "lightning oom": Case(
        "oom-gpu",
        {"rank": 2},
        """Epoch 0:   6%|6         | 32/500 [00:28<07:39,  1.13it/s, v_num=95nc, train_loss=2.590]
[rank2]: Traceback (most recent call last):
[rank2]:   File "/app/train.py", line 50, in <module>
[rank2]:     trainer.fit(model)
[rank2]: torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 2 has a total capacity of 39.39 GiB of which 200.00 MiB is free. Process 123 has 39 GiB memory in use.
[rank0]:[W501 10:10:00.000000000 ProcessGroupNCCL.cpp:1250] Warning: WARNING: process group has NOT been destroyed before we destruct ProcessGroupNCCL.
W0501 10:10:05.100000 1000 torch/distributed/elastic/multiprocessing/api.py:898] Sending process 1001 closing signal SIGTERM
""",
    ),
    "keyboard": Case(
        "cancelled",
        ANYBODY,
        STEPS
        + """^CTraceback (most recent call last):
  File "train.py", line 40, in <module>
    time.sleep(1)
KeyboardInterrupt
""",
    ),
    "spot": Case(
        "preempted",
        ANYBODY,
        STEPS
        + "2025-05-01 10:01:10,000 WARNING Spot instance interruption notice received: instance will be terminated in 2 minutes\n[2025-05-01 10:01:20] SIGTERM received, exiting\n",
    ),
    "maxtext sigterm": Case(
        "preempted",
        ANYBODY,
        "".join(
            f"completed step: {i}, seconds: 10.1, TFLOP/s/device: 200.1, Tokens/s/device: 1000.0, total_weights: 100, loss: 5.{i}\n"
            for i in range(40)
        )
        + "I0501 10:10:00.140058 140 preemption_sync_manager.cc:100] SIGTERM caught at 2025-05-01T10:10:00\nE0501 10:10:01 train.py] Job is preempted.\n",
    ),
}

# ruff: noqa: E501 - log lines are as long as they are
"""Single failures with the echoes around them, as torch, JAX, Slurm, vLLM and DeepSpeed print them."""

from __future__ import annotations

from tests.support.log_cases.parts import (
    ANYBODY,
    INDEX_ERROR,
    NOBODY,
    STEPS,
    Case,
    torchrun_table,
    watchdog,
)

CASES: dict[str, Case] = {
    "echo storm index error": Case(
        "python-exception",
        {"rank": 37},
        STEPS
        + INDEX_ERROR
        + "".join(watchdog(r) for r in range(500) if r != 37)
        + torchrun_table(12, 4, 999, -6, "001"),
    ),
    "storm no cause all same": Case(
        "nccl-timeout",
        NOBODY,
        STEPS + "".join(watchdog(r) for r in range(64)) + torchrun_table(12, 4, 999, -6, "001"),
    ),
    "storm one lags": Case(
        "nccl-timeout",
        {"rank": 5},
        STEPS
        + "".join(watchdog(r) for r in range(64) if r != 5)
        + watchdog(5)
        .replace("SeqNum=120", "SeqNum=119")
        .replace("id: 120", "id: 119")
        .replace("enqueued work: 120", "enqueued work: 119")
        .replace("completed work: 119", "completed work: 118"),
    ),
    "sigkill table": Case(
        "signal-kill", {"rank": 5, "pid": 4321}, STEPS + torchrun_table(5, 5, 4321, -9, "007")
    ),
    "sigsegv table": Case(
        "signal-kill", {"rank": 5, "pid": 4321}, STEPS + torchrun_table(5, 5, 4321, -11, "007")
    ),
    "exit 1 table only": Case(
        "unknown-death", {"rank": 5}, STEPS + torchrun_table(5, 5, 4321, 1, "007")
    ),
    "slurm oom": Case(
        "oom-host",
        ANYBODY,
        STEPS
        + "slurmstepd: error: Detected 1 oom_kill event in StepId=123456.0. Some of the step tasks have been OOM Killed.\nsrun: error: node017: task 3: Out Of Memory\nsrun: Terminating StepId=123456.0\nslurmstepd: error: *** STEP 123456.0 ON node014 CANCELLED AT 2025-05-01T10:05:00 ***\n",
    ),
    "ray memory monitor": Case(
        "oom-host",
        ANYBODY,
        """2025-05-01 10:00:00,123 INFO worker.py:1843 -- Connected to Ray cluster.
(WorkerDict pid=5000, ip=10.0.0.5) step:1 - actor/loss:0.1 - timing_s/step:10.0
Traceback (most recent call last):
  File "/verl/trainer/main_ppo.py", line 100, in main
    ray.get(runner.run.remote(config))
ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.
Memory on the node (IP: 10.0.0.5, ID: 3a5f) where the task (actor ID: 17f730ef04a3a7406b421ea101000000, name=WorkerDict.__init__, pid=16424, memory used=120.10GB) was running was 243.42GB / 256.00GB (0.950867), which exceeds the memory usage threshold of 0.95. Ray killed this worker (ID: 9c2) because it was the most recently scheduled task; to see more information about memory usage on this node, use `ray logs raylet.out -ip 10.0.0.5`.
""",
    ),
    "cuda oom caught then running": Case(
        "completed",
        NOBODY,
        STEPS[:3000]
        + "[2025-05-01 10:00:10] WARNING: caught torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79.11 GiB; skipping batch and emptying cache\n"
        + STEPS
        + "[after training is done] datetime: 2025-05-01 11:00:00 \n",
    ),
    "vllm engine core oom": Case(
        "oom-gpu",
        ANYBODY,
        """(EngineCore_DP0 pid=1234) INFO 05-01 10:00:00 [gpu_model_runner.py:2600] Starting to load model meta-llama/Llama-3-70B...
(EngineCore_DP0 pid=1234) ERROR 05-01 10:01:00 [core.py:700] EngineCore failed to start.
(EngineCore_DP0 pid=1234) ERROR 05-01 10:01:00 [core.py:700] Traceback (most recent call last):
(EngineCore_DP0 pid=1234) ERROR 05-01 10:01:00 [core.py:700]   File "/vllm/v1/engine/core.py", line 691, in run_engine_core
(EngineCore_DP0 pid=1234) ERROR 05-01 10:01:00 [core.py:700]     engine_core = EngineCoreProc(*args, **kwargs)
(EngineCore_DP0 pid=1234) ERROR 05-01 10:01:00 [core.py:700] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 0 has a total capacity of 79.11 GiB of which 1.19 GiB is free.
(APIServer pid=1000) Traceback (most recent call last):
(APIServer pid=1000)   File "/usr/bin/vllm", line 10, in <module>
(APIServer pid=1000)     sys.exit(main())
(APIServer pid=1000) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
""",
    ),
    "vllm no kv": Case(
        "oom-gpu",
        ANYBODY,
        """ERROR 05-01 10:01:00 [core.py:700] EngineCore failed to start.
ERROR 05-01 10:01:00 [core.py:700] Traceback (most recent call last):
ERROR 05-01 10:01:00 [core.py:700]   File "/vllm/v1/core/kv_cache_utils.py", line 532, in check_enough_kv_cache_memory
ERROR 05-01 10:01:00 [core.py:700]     raise ValueError("No available memory for the cache blocks. "
ERROR 05-01 10:01:00 [core.py:700] ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.
RuntimeError: Engine core initialization failed. See root cause above.
""",
    ),
    "jax heartbeats": Case(
        "heartbeat-timeout",
        {"rank": 37},
        "".join(
            f"completed step: {i}, seconds: 10.1, TFLOP/s/device: 200.1, Tokens/s/device: 1000.0, total_weights: 100, loss: 5.{i}\n"
            for i in range(40)
        )
        + """2025-05-01 10:10:00.140058: E external/xla/xla/tsl/distributed_runtime/coordination/coordination_service.cc:1393] /job:jax_worker/replica:0/task:37 has been set to ERROR in coordination service: UNAVAILABLE: Task /job:jax_worker/replica:0/task:37 heartbeat timeout. This indicates that the remote task has failed, got preempted, or crashed unexpectedly. Check the task logs for an earlier error or scheduling events (e.g. preemption, eviction) to debug further.
2025-05-01 10:10:01.140058: E external/xla/xla/tsl/distributed_runtime/coordination/coordination_service_agent.cc:1047] Polled an error from coordination service (this can be an error from this or another task).
2025-05-01 10:10:01.140060: F external/xla/xla/pjrt/distributed/client.h:80] Terminating process because the JAX distributed service detected fatal errors. This most likely indicates that another task died; see the other task logs for more details. Disable Python buffering, i.e. `python -u`, to be sure to see all the previous output. absl::Status: UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):
/job:jax_worker/replica:0/task:37
The tasks have crashed. Check the task logs for an earlier error, or scheduler events (e.g. preemption, eviction) to debug further.

RPC: /tensorflow.CoordinationService/PollForError [type.googleapis.com/tensorflow.CoordinationServiceError='"\\x0f\\n\\njax_worker\\x10%']
""",
    ),
    "xla compile": Case(
        "xla-compile",
        ANYBODY,
        """I0501 10:00:00.1 140 max_utils.py:100] System Information: Jax Version: 0.4.30
jaxlib.xla_extension.XlaRuntimeError: INTERNAL: Mosaic failed to compile TPU kernel: Not implemented: unsupported shape cast
Traceback (most recent call last):
  File "/deps/MaxText/train.py", line 700, in train_loop
    state, metrics = p_train_step(state, example_batch, nextrng)
jaxlib.xla_extension.XlaRuntimeError: INTERNAL: Mosaic failed to compile TPU kernel: Not implemented: unsupported shape cast
""",
    ),
    "xla resource exhausted": Case(
        "oom-gpu",
        ANYBODY,
        """Traceback (most recent call last):
  File "/deps/MaxText/train.py", line 700, in train_loop
    state, metrics = p_train_step(state, example_batch, nextrng)
jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes.
""",
    ),
    # DeepSpeed shows the command of the process that it started last, whichever of them ended.
    "ds launcher -9": Case(
        "signal-kill",
        NOBODY,
        STEPS
        + """[2025-05-01 10:10:00,123] [INFO] [launch.py:315:sigkill_handler] Killing subprocess 12345
[2025-05-01 10:10:00,123] [INFO] [launch.py:315:sigkill_handler] Killing subprocess 12346
[2025-05-01 10:10:01,123] [ERROR] [launch.py:321:sigkill_handler] ['/usr/bin/python', '-u', 'train.py', '--local_rank=1'] exits with return code = -9
""",
    ),
    "nccl init no route": Case(
        "nccl-init",
        ANYBODY,
        """node2:41:99 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.2<0>
node2:41:99 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.0.0.1<43211> failed : No route to host
node2:41:99 [0] NCCL INFO misc/socket.cc:567 -> 2
[rank8]: Traceback (most recent call last):
[rank8]:   File "train.py", line 10, in <module>
[rank8]:     dist.barrier()
[rank8]: torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:268, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.19.3
[rank8]: ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.
""",
    ),
    "addr in use": Case(
        "port-in-use",
        ANYBODY,
        """[W501 10:00:00.000000000 socket.cpp:436] [c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).
[E501 10:00:00.000000000 socket.cpp:472] [c10d] The server socket has failed to listen on any local network address.
Traceback (most recent call last):
  File "/usr/bin/torchrun", line 8, in <module>
torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: 0, code: -98, name: EADDRINUSE, message: address already in use
""",
    ),
    "rdzv timeout store": Case(
        "rendezvous",
        ANYBODY,
        """[W501 10:00:00.000000000 socket.cpp:697] [c10d] The client socket has failed to connect to [node001]:29500 (errno: 110 - Connection timed out).
Traceback (most recent call last):
  File "/usr/lib/python3/torch/distributed/run.py", line 900, in main
torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to connect to (node001, 29500).
""",
    ),
    "rdzv timeout elastic": Case(
        "rendezvous",
        ANYBODY,
        """Traceback (most recent call last):
  File "torch/distributed/elastic/rendezvous/dynamic_rendezvous.py", line 1166, in next_rendezvous
    raise RendezvousTimeoutError()
torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError
""",
    ),
    "missing env": Case(
        "missing-env",
        ANYBODY,
        """Traceback (most recent call last):
  File "train.py", line 5, in <module>
    dist.init_process_group("nccl")
  File "/usr/lib/python3/torch/distributed/rendezvous.py", line 235, in _get_env_or_raise
    raise _env_error(env_var)
ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable RANK expected, but not set
""",
    ),
    "missing keyerror LOCAL_RANK": Case(
        "missing-env",
        ANYBODY,
        """Traceback (most recent call last):
  File "train.py", line 5, in <module>
    rank = int(os.environ["LOCAL_RANK"])
  File "/usr/lib/python3.10/os.py", line 680, in __getitem__
    raise KeyError(key) from None
KeyError: 'LOCAL_RANK'
""",
    ),
    "disk full ckpt": Case(
        "checkpoint-fs-error",
        {"rank": 0},
        STEPS
        + """[rank0]: Traceback (most recent call last):
[rank0]:   File "/w/megatron/training/checkpointing.py", line 400, in save_checkpoint
[rank0]:     torch.save(state_dict, checkpoint_name)
[rank0]:   File "/usr/lib/python3/torch/serialization.py", line 850, in save
[rank0]: RuntimeError: [enforce fail at inline_container.cc:603] . unexpected pos 1280 vs 1174
[rank0]: During handling of the above exception, another exception occurred:
""",
    ),
    "enospc": Case(
        "storage",
        ANYBODY,
        STEPS
        + """Traceback (most recent call last):
  File "train.py", line 400, in <module>
    trainer.save_checkpoint("x.ckpt")
OSError: [Errno 28] No space left on device
""",
    ),
    "ckpt load mismatch": Case(
        "checkpoint-load",
        ANYBODY,
        """Traceback (most recent call last):
  File "train.py", line 400, in <module>
    model.load_state_dict(torch.load("x.pt"))
RuntimeError: Error(s) in loading state_dict for LlamaForCausalLM:
	Missing key(s) in state_dict: "model.embed_tokens.weight".
	size mismatch for lm_head.weight: copying a param with shape torch.Size([32000, 4096]) from checkpoint, the shape in current model is torch.Size([32001, 4096]).
""",
    ),
    "ckpt corrupt": Case(
        "checkpoint-load",
        ANYBODY,
        """Traceback (most recent call last):
  File "train.py", line 400, in <module>
    ckpt = torch.load("/ckpt/step_100.pt")
RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory
""",
    ),
    "safetensors": Case(
        "checkpoint-load",
        ANYBODY,
        """Traceback (most recent call last):
  File "train.py", line 400, in <module>
    model = AutoModelForCausalLM.from_pretrained("/models/x")
safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge
""",
    ),
    "xid": Case(
        "gpu-lost",
        {"node": "gpu-node-3"},
        {
            "dmesg-gpu-node-3.log": "[Thu May  1 10:04:58 2025] NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n",
            "job.log": STEPS
            + "[rank21]:[E501 10:05:00.000000000 ProcessGroupNCCL.cpp:1746] [PG ID 0 PG GUID 0(default_pg) Rank 21] Process group watchdog thread terminated with exception: CUDA error: unspecified launch failure\n"
            + "".join(watchdog(r) for r in range(21)),
        },
    ),
    "cuda launch failure only": Case(
        "illegal-memory-access",
        {"rank": 21},
        STEPS
        + "[rank21]:[E501 10:05:00.000000000 ProcessGroupNCCL.cpp:1746] [PG ID 0 PG GUID 0(default_pg) Rank 21] Process group watchdog thread terminated with exception: CUDA error: an illegal memory access was encountered\n"
        + "".join(watchdog(r) for r in range(21)),
    ),
    "soft success": Case(
        "soft-success",
        ANYBODY,
        STEPS
        + """[after training is done] datetime: 2025-05-01 11:00:00
[rank0]:[W501 11:00:01.000000000 ProcessGroupNCCL.cpp:1496] Warning: WARNING: destroy_process_group() was not called before program exit, which can leak resources.
terminate called without an active exception
srun: error: node001: task 3: Aborted (core dumped)
""",
    ),
    "completed hf": Case(
        "completed",
        ANYBODY,
        "".join(
            f"{{'loss': 1.{i}, 'grad_norm': 0.5, 'learning_rate': 5e-05, 'epoch': 0.{i}}}\n"
            for i in range(10, 60)
        )
        + "{'train_runtime': 1234.5, 'train_samples_per_second': 10.1, 'train_steps_per_second': 1.0, 'train_loss': 1.234, 'epoch': 1.0}\n100%|██████████| 500/500 [20:34<00:00,  2.47s/it]\n",
    ),
    "scancel": Case(
        "cancelled",
        ANYBODY,
        STEPS
        + "slurmstepd: error: *** JOB 123456 ON node001 CANCELLED AT 2025-05-01T10:01:05 ***\nsrun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n",
    ),
    "time limit": Case(
        "cancelled",
        ANYBODY,
        STEPS
        + "slurmstepd: error: *** STEP 123456.0 ON node001 CANCELLED AT 2025-05-01T10:01:05 DUE TO TIME LIMIT ***\n",
    ),
    "preempt": Case(
        "preempted",
        ANYBODY,
        STEPS
        + "slurmstepd: error: *** JOB 123456 ON node001 CANCELLED AT 2025-05-01T10:01:05 DUE TO PREEMPTION ***\n",
    ),
    "node fail": Case(
        "node-fail",
        ANYBODY,
        STEPS
        + "slurmstepd: error: *** JOB 123456 ON node001 CANCELLED AT 2025-05-01T10:01:05 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\nsrun: error: Node failure on node017\n",
    ),
}

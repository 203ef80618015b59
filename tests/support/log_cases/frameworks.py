# ruff: noqa: E501 - log lines are as long as they are
"""Failures as Ray Train, SGLang, Lightning, Accelerate, XLA and Megatron report them."""

from __future__ import annotations

from tests.support.log_cases.parts import (
    ANYBODY,
    MAXTEXT_STEPS,
    NOBODY,
    STEPS,
    Case,
    torchrun_table,
    watchdog,
)

_REQUESTS = "".join(
    f"(ServeReplica:default:LLM pid=9912, ip=10.0.1.8) INFO 2025-06-13 15:20:{second},040 default_LLM 4f8s -- POST /v1/chat/completions 200 812.3ms\n"
    for second in range(10, 50)
)

CASES: dict[str, Case] = {
    "ray train worker group error": Case(
        "python-exception",
        {"rank": 2},
        """(TrainController pid=100) [State Transition] SCHEDULING -> RUNNING.
(RayTrainWorker pid=201, ip=10.0.0.2) epoch 0 step 10 loss 2.3 time 0.5s
(TrainController pid=100) [FailurePolicy] Decision: FailureDecision.RAISE, Error source: worker group, Error count / maximum errors allowed: 1/0, Error: Training failed due to worker errors:
(TrainController pid=100) [Rank 2 Error Snippet]:
(TrainController pid=100) Traceback (most recent call last):
(TrainController pid=100)   File "/app/train.py", line 33, in train_func
(TrainController pid=100)     raise RuntimeError("synthetic")
(TrainController pid=100) RuntimeError: synthetic
ray.train.WorkerGroupError: Training failed due to worker errors:
[Rank 2 Error Snippet]:
Traceback (most recent call last):
  File "/app/train.py", line 33, in train_func
    raise RuntimeError("synthetic")
RuntimeError: synthetic
""",
    ),
    "ray train oom": Case(
        "oom-gpu",
        ANYBODY,
        """2025-05-01 10:00:00,100 INFO step 3 loss 2.0
ray.train.base_trainer.TrainingFailedError: The Ray Train run failed. Please inspect the previous error messages for a cause.
ray.exceptions.RayTaskError(OutOfMemoryError): ray::_RayTrainWorker__execute.get_next() (pid=4242, ip=10.0.0.8, actor_id=ab, repr=<ray.train._internal.worker_group.RayTrainWorker object at 0x7f>)
  File "/usr/lib/python3/ray/train/_internal/worker_group.py", line 33, in __execute
    raise skipped from exception_cause(skipped)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 22.06 GiB of which 1.06 GiB is free.
""",
    ),
    "raylet oom text": Case(
        "oom-host",
        {"node": "10.0.0.8"},
        """(Trainer pid=4242, ip=10.0.0.8) step 3 loss 2.0 time 1s
(raylet, ip=10.0.0.8) [2025-05-01 10:00:10,000 E 88 88] (raylet) node_manager.cc:3064: 1 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons at node (ID: 4d21, IP: 10.0.0.8) over the last time period. To see more information about the Workers killed on this node, use `ray logs raylet.out -ip 10.0.0.8`
(raylet, ip=10.0.0.8) Refer to the documentation on how to address the out of memory issue: https://docs.ray.io/en/latest/ray-core/scheduling/ray-oom-prevention.html.
ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.
	class_name: Trainer
	pid: 4242
	ip: 10.0.0.8
The actor is dead because its worker process has died. Worker exit type: NODE_OUT_OF_MEMORY Worker exit detail: Task was killed due to the node running low on memory.
""",
    ),
    "ray creation task err": Case(
        "oom-gpu",
        {"pid": 514428},
        """(SglEngine pid=514428, ip=10.0.0.2) [2026-02-20 02:05:00] Load weight begin. avail mem=78.00 GB
Traceback (most recent call last):
  File "train_entry.py", line 100, in <module>
ray.exceptions.ActorDiedError: The actor died because of an error raised in its creation task, ray::SglEngine.__init__() (pid=514428, ip=10.0.0.2, actor_id=ab, repr=<x.SglEngine object at 0x7>)
  File "/app/engine.py", line 88, in __init__
    raise RuntimeError("Not enough memory. Please try to increase --mem-fraction-static.")
RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.
""",
    ),
    "pod pending then hang placement": Case(
        "hang",
        ANYBODY,
        """2026-02-20 02:03:57,000 INFO bundle 0, actual_bundle_index: 0, node: 10.0.0.1
(autoscaler +30s) Error: No available node types can fulfill resource request {'GPU': 8.0}. Add suitable node types to this cluster to resolve this issue.
2026-02-20 02:33:57,000 WARNING still waiting for placement group
""",
    ),
    "sgl watchdog": Case(
        "hang",
        ANYBODY,
        """[2025-05-01 10:00:00 TP0] Decode batch. #running-req: 10, #token: 1000, gen throughput (token/s): 100.0
[2025-05-01 10:06:00 TP0] Watchdog timeout (self.watchdog_last_forward_ct=100, self.watchdog_timeout=300)
[2025-05-01 10:06:05] Received sigquit from a child process. It usually means the child failed.
""",
    ),
    "vllm rpc timeout": Case(
        "python-exception",
        ANYBODY,
        """ERROR 05-01 10:01:00 [core.py:700] TimeoutError: RPC call to execute_model timed out.
vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.
""",
    ),
    "nemo sigterm": Case(
        "cancelled",
        ANYBODY,
        "Training epoch 0, iteration 10/999 | lr: 1e-4 | global_batch_size: 8 | global_step: 10 | reduced_train_loss: 10.1 | train_step_timing in s: 1.2\nslurmstepd: error: *** STEP 1.0 ON n1 CANCELLED AT 2025-05-01T10:01:05 DUE TO TIME LIMIT ***\nsrun: error: n1: task 0: Terminated\n",
    ),
    "lightning sigterm": Case(
        "cancelled",
        ANYBODY,
        """Epoch 0:   6%|6         | 32/500 [00:28<07:39,  1.13it/s, v_num=95nc, train_loss=2.590]
[rank: 0] Received SIGTERM: 15
Bypassing SIGTERM: 15
lightning_fabric.utilities.exceptions.SIGTERMException
""",
    ),
    "accelerate sigsegv": Case(
        "signal-kill",
        ANYBODY,
        STEPS
        + """Traceback (most recent call last):
  File "/usr/bin/accelerate", line 8, in <module>
subprocess.CalledProcessError: Command '['/usr/bin/python', 'train.py']' died with <Signals.SIGSEGV: 11>.
""",
    ),
    "accelerate sigkill": Case(
        "signal-kill",
        ANYBODY,
        STEPS
        + """subprocess.CalledProcessError: Command '['/usr/bin/python', 'train.py']' died with <Signals.SIGKILL: 9>.
""",
    ),
    "nccl unhandled cuda": Case(
        "oom-gpu",
        ANYBODY,
        """torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5
ncclUnhandledCudaError: Call to CUDA function failed.
Last error:
Cuda failure 'out of memory'
""",
    ),
    "nccl dup gpu": Case(
        "nccl-init",
        ANYBODY,
        """torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, invalid usage (run with NCCL_WARN=INFO for details), NCCL version 2.21.5
ncclInvalidUsage: This usually reflects invalid usage of NCCL library.
Last error:
Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000
""",
    ),
    "ib async": Case(
        "transport-lost",
        ANYBODY,
        STEPS
        + """node7:41:99 [3] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.0.0.9<43214> with status=12 opcode=0 len=0 vendor err 129 (Recv) localGid fe80::1 remoteGidsfe80::2 hca mlx5_3
node7:41:99 [3] NCCL INFO transport/net.cc:1298 -> 6
"""
        + "".join(watchdog(r) for r in range(8)),
    ),
    "gpu ecc dmesg + cuda err": Case(
        "gpu-lost",
        {"gpu": "0000:4e:00"},
        {
            "kern.log": "May  1 10:00:30 gpu017 kernel: NVRM: Xid (PCI:0000:4e:00): 48, pid=12345, name=python, DBE (Double Bit Error) ECC Error\nMay  1 10:00:30 gpu017 kernel: NVRM: Xid (PCI:0000:4e:00): 63, pid=12345, name=python, Row Remapper: New row marked for remapping\n",
            "job.log": STEPS
            + "[rank3]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n",
        },
    ),
    "jax coord connect": Case(
        "rendezvous",
        ANYBODY,
        """I0501 10:00:00.000000 140 distributed.py:100] Connecting to JAX distributed service on 10.0.0.1:1234
2025-05-01 10:05:00.140060: F external/xla/xla/pjrt/distributed/client.h:80] Terminating process because the JAX distributed service detected fatal errors. absl::Status: DEADLINE_EXCEEDED: Barrier timed out. Id: PjRT_Client_Connect::0. This usually happens because a task triggered the barrier unexpectedly early, or some tasks died. The first task at the barrier: /job:jax_worker/replica:0/task:0. Some timed out task names:
/job:jax_worker/replica:0/task:3
""",
    ),
    "tpu preempt": Case(
        "preempted",
        ANYBODY,
        MAXTEXT_STEPS
        + "Instance was preempted: projects/x/zones/us-central2-b/instances/t1v-n-abc-w-0\n2025-05-01 10:10:00.140058: E external/xla/xla/tsl/distributed_runtime/coordination/coordination_service.cc:1393] /job:jax_worker/replica:0/task:37 has been set to ERROR in coordination service: UNAVAILABLE: Task /job:jax_worker/replica:0/task:37 heartbeat timeout. \n",
    ),
    "jax first task real exc": Case(
        "python-exception",
        ANYBODY,
        MAXTEXT_STEPS
        + """Traceback (most recent call last):
  File "/deps/MaxText/train.py", line 700, in train_loop
    record_metrics(x)
  File "/deps/MaxText/train.py", line 100, in record_metrics
    y = d["missing"]
KeyError: 'missing'
2025-05-01 10:10:00.140058: E external/xla/xla/tsl/distributed_runtime/coordination/coordination_service.cc:1393] /job:jax_worker/replica:0/task:3 has been set to ERROR in coordination service: UNAVAILABLE: Task /job:jax_worker/replica:0/task:3 heartbeat timeout.
""",
    ),
    "xla collective stuck": Case(
        "hang",
        ANYBODY,
        MAXTEXT_STEPS
        + "2025-05-01 10:10:00.140058: E external/xla/xla/service/rendezvous.cc:31] This thread has been waiting for `acquire clique for rank 3; clique=devices=[0,1,2,3]; stream=0` for 20 seconds and may be stuck. Expected 4 threads to join the rendezvous, but not all of them arrived on time.\n2025-05-01 10:10:40.140058: F external/xla/xla/service/rendezvous.cc:65] Termination timeout for `acquire clique` of 40 seconds exceeded. Exiting to ensure a consistent program state. Expected 4 threads to join the rendezvous, but not all of them arrived on time.\n",
    ),
    "wandb comm err survived": Case(
        "completed",
        ANYBODY,
        STEPS[:3000]
        + "wandb: ERROR Error while calling W&B API: context deadline exceeded (<Response [500]>)\nwandb: Network error (ConnectionError), entering retry loop.\n"
        + STEPS
        + "[after training is done] datetime: 2025-05-01 11:00:00 \n",
    ),
    "traceback at exit tracker": Case(
        "soft-success",
        ANYBODY,
        "".join(
            f"{{'loss': 1.{i}, 'grad_norm': 0.5, 'learning_rate': 5e-05, 'epoch': 0.{i}}}\n"
            for i in range(10, 60)
        )
        + "{'train_runtime': 1234.5, 'train_samples_per_second': 10.1, 'train_steps_per_second': 1.0, 'train_loss': 1.234, 'epoch': 1.0}\nException ignored in: <function _ConnectionBase.__del__ at 0x7f>\nTraceback (most recent call last):\n  File \"/usr/lib/python3.10/multiprocessing/connection.py\", line 132, in __del__\n    self._close()\nOSError: [Errno 9] Bad file descriptor\n",
    ),
    "undefined symbol": Case(
        "config",
        ANYBODY,
        """Traceback (most recent call last):
  File "train.py", line 2, in <module>
    import flash_attn
ImportError: /usr/lib/python3/flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so: undefined symbol: _ZN3c104cuda9SetDeviceEi
""",
    ),
    "inductor": Case(
        "xla-compile",
        ANYBODY,
        """Traceback (most recent call last):
  File "train.py", line 2, in <module>
torch._inductor.exc.InductorError: CompilationError: at 8:11: error
""",
    ),
    "cudnn": Case(
        "python-exception",
        ANYBODY,
        STEPS
        + """[rank0]: RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED
""",
    ),
    "device assert": Case(
        "python-exception",
        ANYBODY,
        STEPS
        + """../aten/src/ATen/native/cuda/Indexing.cu:1308: indexSelectLargeIndex: block: [0,0,0], thread: [0,0,0] Assertion `srcIndex < srcSelectDimSize` failed.
[rank1]: RuntimeError: CUDA error: device-side assert triggered
"""
        + "".join(watchdog(r) for r in range(8) if r != 1),
    ),
    "node fail k8s": Case(
        "node-fail", ANYBODY, STEPS + "Warning  NodeNotReady  node-controller  Node is not ready\n"
    ),
    "ckpt stuck fuse": Case(
        "storage",
        ANYBODY,
        STEPS
        + "[rank0]: OSError: [Errno 107] Transport endpoint is not connected: '/mnt/gcsfuse/ckpt/step_100'\n",
    ),
    "quota": Case(
        "storage",
        ANYBODY,
        STEPS
        + """[rank0]:   File "/w/megatron/training/checkpointing.py", line 400, in save_checkpoint
[rank0]: OSError: [Errno 122] Disk quota exceeded: '/scratch/ckpt/iter_100'
""",
    ),
    **{
        f"ray serve {name}": Case(
            kind,
            ANYBODY,
            _REQUESTS
            + "(ServeController pid=8948) WARNING 2025-06-13 15:20:50,182 controller 8948 -- Health check for Replica(id='9dkq', deployment='LLM', app='default') failed: ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
            + after,
        )
        for name, kind, after in (
            ("replaced a replica", "unknown-death", _REQUESTS.replace("15:20", "15:21")),
            ("lost its replica", "actor-fail", ""),
        )
    },
    "tpu runtime names a worker": Case(
        "gpu-lost",
        {"node": "job-v6e-8-5-15.headless-svc"},
        MAXTEXT_STEPS
        + "E0511 18:18:50.796514     915 session_master.cc:505] Session is failing with the following status: Session master detected TPU session error from worker job-v6e-8-5-15.headless-svc:8471. The reporting TPU chip locations are:tpu31:pe4:3,\n"
        + "E0511 18:18:50.796852     915 tpunetd_client.cc:311] Detected failure SLICE_FAILURE_CHIP_DRIVER_ERROR in session e6c8; Start failure handling\n",
    ),
    "ray train may not write its checkpoint": Case(
        "storage",
        {"rank": 2},
        """(TrainController pid=100) [Rank 2 Error Snippet]:
(TrainController pid=100) Traceback (most recent call last):
(TrainController pid=100)   File "/app/train.py", line 51, in train_func
(TrainController pid=100)     ray.train.report(metrics, checkpoint=ckpt)
(TrainController pid=100) OSError: When initiating multiple part upload for key 'run/checkpoint_3/model.pt' in bucket 'bkt': AWS Error ACCESS_DENIED during CreateMultipartUpload operation: User is not authorized
""",
    ),
    "loss is nan on several ranks": Case(
        "nan-loss",
        NOBODY,
        STEPS
        + "Loss is nan, stopping training\n" * 3
        + torchrun_table(1, 1, 3322, 1, "3").replace(
            "  <NO_OTHER_FAILURES>\n",
            "[1]:\n  time      : 2025-05-01_10:10:05\n  host      : node3\n  rank      : 2 (local_rank: 2)\n  exitcode  : 1 (pid: 3323)\n  error_file: <N/A>\n  traceback : none\n",
        ),
    ),
    "loss is nan on one rank": Case(
        "nan-loss",
        {"rank": 1},
        STEPS + "Loss is nan, stopping training\n" + torchrun_table(1, 1, 3322, 1, "3"),
    ),
    "two versions of nccl": Case(
        "nccl-init",
        NOBODY,
        """node-1:700:790 [0] init.cc:1077 NCCL WARN Mismatched NCCL version detected : rank 8 version 22304 rank 0 version 22105
[rank0]: torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:317, invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.21.5
[rank0]: ncclInvalidUsage: This usually reflects invalid usage of NCCL library.
""",
    ),
}

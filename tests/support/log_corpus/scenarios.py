# ruff: noqa: E501 - log lines are as long as they are
"""The failures: one function a class. Each returns the finished job and what is true of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.support.log_corpus.job import (
    NODES,
    PIDS,
    RANKS,
    START,
    Job,
    bar,
    glog,
    maxtext,
    megatron,
    node_of,
    stamp,
)

STEPS = 7800
"""With the chatter that makes more than ten thousand lines."""


@dataclass
class Truth:
    """What a person who knows the story says."""

    kind: str
    rank: int | None = None
    node: str = ""
    pid: int | None = None
    nobody: bool = False
    last_step: int | None = None
    extra: dict[str, object] = field(default_factory=dict)


Scenario = Callable[[int], tuple[Job, Truth]]


def decoys(job: Job) -> None:
    """Trouble of other classes that training survives."""
    job.say(
        f"{job.iso()} ERROR ckpt: upload of step 500 failed: An error occurred (SlowDown) when calling the PutObject operation: Please reduce your request rate; will retry",
        0,
    )
    job.say(
        f"{job.iso()} WARNING tokenizer: skipped a document\n"
        "Traceback (most recent call last):\n"
        '  File "/app/data.py", line 40, in clean\n'
        "    return json.loads(line)\n"
        "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
        3,
    )
    job.say(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB; emptied the cache and tried again",
        5,
    )
    job.say("OSError: [Errno 98] Address already in use", 2)


def begun(seed: int, writer: Callable[[Job], str] = maxtext, steps: int = STEPS) -> Job:
    job = Job(seed)
    job.header(writer.__name__)
    job.train(steps // 2, writer)
    decoys(job)
    job.train(steps - steps // 2, writer)
    return job


def nccl_timeout(seed: int) -> tuple[Job, Truth]:
    job = begun(seed, megatron)
    job.watchdogs(412, [r for r in range(RANKS) if r != 5])
    job.watchdogs(411, [5], enqueued=411, minutes=0)
    job.say("terminate called after throwing an instance of 'c10::DistBackendError'", 2)
    job.torchrun_end(2, -6)
    return job, Truth("nccl-timeout", rank=5)


def nccl_timeout_nobody(seed: int) -> tuple[Job, Truth]:
    job = begun(seed, megatron)
    job.watchdogs(412, list(range(RANKS)))
    job.torchrun_end(0, -6)
    return job, Truth("nccl-timeout", nobody=True)


def python_exception(seed: int) -> tuple[Job, Truth]:
    job = begun(seed)
    job.traceback(6, "IndexError", "list index out of range")
    job.peers_lose(6)
    job.watchdogs(77, [r for r in range(RANKS) if r != 6])
    job.torchrun_end(6, 1)
    return job, Truth("python-exception", rank=6)


def oom_gpu(seed: int) -> tuple[Job, Truth]:
    job = begun(seed, bar)
    job.traceback(
        3,
        "torch.OutOfMemoryError",
        "CUDA out of memory. Tried to allocate 2.15 GiB. GPU 3 has a total capacity of 79.15 GiB of which 1.33 GiB is free.",
    )
    job.peers_lose(3)
    job.torchrun_end(3, 1)
    return job, Truth("oom-gpu", rank=3)


def oom_host(seed: int) -> tuple[Job, Truth]:
    job = begun(seed)
    job.peers_lose(4)
    job.torchrun_end(4, -9)
    job.say(
        "slurmstepd: error: Detected 1 oom_kill event in StepId=901.0. Some of the step tasks have been OOM Killed."
    )
    job.say(
        f"[{kernel(job.now - 1)}] Memory cgroup out of memory: Killed process {PIDS[4]} (python3) total-vm:912034560kB, anon-rss:524013312kB",
        file="dmesg-node002.log",
    )
    return job, Truth("oom-host", rank=4, pid=PIDS[4])


def signal_kill(seed: int) -> tuple[Job, Truth]:
    job = begun(seed, megatron)
    job.peers_lose(7)
    job.torchrun_end(7, -9)
    return job, Truth("signal-kill", rank=7, pid=PIDS[7], node="node002")


def segfault(seed: int) -> tuple[Job, Truth]:
    job = begun(seed)
    job.say("Fatal Python error: Segmentation fault", 1)
    job.peers_lose(1)
    job.torchrun_end(1, -11)
    return job, Truth("signal-kill", rank=1)


def gpu_lost(seed: int) -> tuple[Job, Truth]:
    job = begun(seed)
    job.say(
        f"[{kernel(job.now)}] NVRM: Xid (PCI:0000:5d:00): 79, pid={PIDS[2]}, GPU has fallen off the bus.",
        file="dmesg-node001.log",
    )
    job.traceback(2, "RuntimeError", "CUDA error: unknown error")
    job.peers_lose(2)
    job.watchdogs(900, [0, 1, 3, 4, 5, 6, 7])
    job.torchrun_end(2, 1)
    return job, Truth("gpu-lost", node="node001")


def ecc(seed: int) -> tuple[Job, Truth]:
    job = begun(seed, bar)
    job.traceback(5, "RuntimeError", "CUDA error: uncorrectable ECC error encountered")
    job.say(
        f"[rank5]:[E{glog(job.now)} ProcessGroupNCCL.cpp:1515] [PG 0 (default_pg) Rank 5] Process group watchdog thread terminated with exception: CUDA error: uncorrectable ECC error encountered"
    )
    job.peers_lose(5)
    job.torchrun_end(5, -6)
    return job, Truth("gpu-lost", rank=5)


def hang(seed: int) -> tuple[Job, Truth]:
    job = begun(seed)
    for _ in range(40):
        job.now += 60
        job.say(f"{job.iso()} INFO monitor: gpu utilisation 100 %, power 310 W", None)
    job.say(
        f"slurmstepd: error: *** JOB 901 ON node001 CANCELLED AT {stamp(job.now).replace(' ', 'T')[:19]} ***"
    )
    job.say(
        f"W{glog(job.now)} 900 torch/distributed/elastic/agent/server/api.py:719] Received 15 death signal, shutting down workers"
    )
    return job, Truth("hang", nobody=True)


def cancelled(seed: int) -> tuple[Job, Truth]:
    job = begun(seed)
    job.say(
        f"slurmstepd: error: *** JOB 901 ON node001 CANCELLED AT {stamp(job.now).replace(' ', 'T')[:19]} ***"
    )
    job.say(
        f"W{glog(job.now)} 900 torch/distributed/elastic/agent/server/api.py:719] Received 15 death signal, shutting down workers"
    )
    for rank in range(RANKS):
        job.say(
            f"W{glog(job.now)} 900 torch/distributed/elastic/multiprocessing/api.py:766] Closing process {PIDS[rank]} via signal SIGTERM"
        )
    job.say(
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 900 got signal: 15"
    )
    return job, Truth("cancelled", nobody=True)


def preempted(seed: int) -> tuple[Job, Truth]:
    job = begun(seed)
    job.say(f"{job.iso()} WARNING spot: spot instance interruption notice received, 120 s left", 0)
    job.say(
        f"W{glog(job.now)} 900 torch/distributed/elastic/agent/server/api.py:719] Received 15 death signal, shutting down workers",
        after=5,
    )
    return job, Truth("preempted")


def heartbeat(seed: int) -> tuple[Job, Truth]:
    job = begun(seed)
    job.now += 100
    when = stamp(job.now).replace(",", ".")
    job.say(
        f"{when}000: E external/xla/xla/tsl/distributed_runtime/coordination/coordination_service.cc:1170] /job:jax_worker/replica:0/task:5 has been set to ERROR in coordination service: UNAVAILABLE: Task /job:jax_worker/replica:0/task:5 heartbeat timeout. This indicates that the remote task has failed, got preempted, or crashed unexpectedly.",
        0,
    )
    for rank in range(RANKS):
        job.say(
            f"E{glog(job.now)} 1044 coordination_service_agent.cc:332] Polled an error from coordination service (this can be an error from this or another task).",
            rank,
        )
        job.say(
            f"F{glog(job.now)} 1044 client.h:77] Terminating process because the JAX distributed service detected fatal errors. This most likely indicates that another task died; see the other task logs for more details. absl::Status: UNAVAILABLE: Failed to send RPC. Either the leader task was preempted/died/restarted unexpectedly",
            rank,
        )
    job.say("Fatal Python error: Aborted", 2)
    return job, Truth("heartbeat-timeout", rank=5)


def actor_fail(seed: int) -> tuple[Job, Truth]:
    job = begun(seed)
    job.say(
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
        "\tclass_name: TrainerActor\n"
        "\tactor_id: f20da4dcf474d8bb05e952bb03000000\n"
        f"\tpid: {PIDS[6]}\n"
        "\tnamespace: aa07eaa0\n"
        "\tip: 10.0.0.2\n"
        "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file. There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer due to high memory usage. (2) ray stop --force is called. (3) The worker is crashed unexpectedly due to SIGSEGV or other unexpected errors."
    )
    job.peers_lose(6)
    job.watchdogs(55, [r for r in range(RANKS) if r != 6])
    return job, Truth("actor-fail", pid=PIDS[6])


def node_fail(seed: int) -> tuple[Job, Truth]:
    job = begun(seed)
    job.peers_lose(5)
    job.now += 17
    job.say(
        f"{job.iso()}\tWARNING worker.py:1839 -- The node with node id: b1d7d50a and address: 10.0.0.2 and node name: 10.0.0.2 has been marked dead because the detector has missed too many heartbeats from it. This can happen when a\t(1) raylet crashes unexpectedly (OOM, preempted node, etc.)"
    )
    job.say(
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
        "\tclass_name: TrainerActor\n"
        f"\tpid: {PIDS[5]}\n"
        "\tip: 10.0.0.2\n"
        "The actor died because its node has died. Node Id: b1d7d50a"
    )
    return job, Truth("node-fail", extra={"ip": "10.0.0.2"})


def checkpoint_fs(seed: int) -> tuple[Job, Truth]:
    job = begun(seed)
    job.traceback(
        0,
        "RuntimeError",
        "[enforce fail at inline_container.cc:778] . PytorchStreamWriter failed writing file data/176: file write failed",
        "ckpt.py",
    )
    job.say(
        "OSError: [Errno 28] No space left on device: '/nvme/checkpoints/step_8000/model.pt'", 0
    )
    job.peers_lose(0)
    job.torchrun_end(0, 1)
    return job, Truth("checkpoint-fs-error", rank=0)


def storage(seed: int) -> tuple[Job, Truth]:
    job = begun(seed)
    job.traceback(
        4, "OSError", "[Errno 116] Stale file handle: '/mnt/data/train-00012.bin'", "data.py"
    )
    job.peers_lose(4)
    job.torchrun_end(4, 1)
    return job, Truth("storage", rank=4)


def data_loading(seed: int) -> tuple[Job, Truth]:
    job = begun(seed)
    job.say(
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
        2,
    )
    job.traceback(
        2,
        "RuntimeError",
        "DataLoader worker (pid 50219) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory.",
    )
    job.peers_lose(2)
    job.torchrun_end(2, 1)
    return job, Truth("data-loading", rank=2)


def nan_loss(seed: int) -> tuple[Job, Truth]:
    job = begun(seed)
    job.train(30, lambda j: maxtext(j).rsplit("loss:", 1)[0] + "loss: nan", chatter=0.1)
    job.say("RuntimeError: loss is nan, stopping training", 0)
    job.torchrun_end(0, 1)
    return job, Truth("nan-loss")


def throughput(seed: int) -> tuple[Job, Truth]:
    job = begun(seed)
    job.seconds = 2.6
    job.train(2500, maxtext)
    return job, Truth("throughput-degradation", nobody=True)


def completed(seed: int) -> tuple[Job, Truth]:
    job = begun(seed)
    job.say(f"{job.iso()} INFO Training finished after {job.step} steps", 0, after=2)
    job.say(
        "[rank0]:[W306 10:01:00.1 ProcessGroupNCCL.cpp:1250] Warning: WARNING: process group has NOT been destroyed before we destruct ProcessGroupNCCL.",
        0,
    )
    return job, Truth("completed", nobody=True)


def soft_success(seed: int) -> tuple[Job, Truth]:
    job = begun(seed)
    job.say(f"{job.iso()} INFO Training finished after {job.step} steps", 0, after=2)
    job.traceback(
        3, "ConnectionResetError", "[Errno 104] Connection reset by peer", "wandb_hook.py"
    )
    job.torchrun_end(3, -11)
    return job, Truth("soft-success")


def running(seed: int) -> tuple[Job, Truth]:
    return begun(seed), Truth("running", nobody=True, extra={"live": True})


def unknown_death(seed: int) -> tuple[Job, Truth]:
    return begun(seed), Truth("unknown-death", nobody=True)


def startup(seed: int) -> Job:
    """A job that fails before its first step, after a long start-up with decoys."""
    job = Job(seed)
    job.header("startup")
    for shard in range(11_000):
        job.now += 0.03
        rank = shard % RANKS
        job.say(
            f"{job.iso()} INFO loader: Multi-thread loading shards: {shard * 100 // 11000}% Completed | {shard}/11000",
            rank,
        )
        if shard % 700 == 0:
            job.say(
                f"{job.iso()} WARNING hub: read timed out, retrying in 1.0 s (attempt 1/5)", rank
            )
            job.say(
                "[W socket.cpp:464] [c10d] The client socket cannot be initialized to connect to [node001]:29500 (errno: 97 - Address family not supported by protocol).",
                rank,
            )
        if shard % 1900 == 5:
            job.say(
                f"[{job.iso()} E 900 950] core_worker.cc:800: Failed to establish connection to the metrics exporter agent.",
                rank,
            )
    return job


def nccl_init(seed: int) -> tuple[Job, Truth]:
    job = startup(seed)
    job.say(
        f"node002:{PIDS[5]}:{PIDS[5]} [1] NCCL WARN Connect to 10.0.0.1<40123> failed : No route to host",
        5,
    )
    job.traceback(
        5,
        "torch.distributed.DistBackendError",
        "NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:268, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5",
    )
    job.torchrun_end(5, 1)
    return job, Truth("nccl-init", rank=5)


def port_in_use(seed: int) -> tuple[Job, Truth]:
    job = startup(seed)
    job.say(
        "[W socket.cpp:464] [c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",
        0,
    )
    job.say(
        "[E socket.cpp:500] [c10d] The server socket has failed to listen on any local network address.",
        0,
    )
    job.traceback(
        0,
        "RuntimeError",
        "The server socket has failed to listen on any local network address. The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",
    )
    job.torchrun_end(0, 1)
    return job, Truth("port-in-use", rank=0)


def rendezvous(seed: int) -> tuple[Job, Truth]:
    job = startup(seed)
    job.now += 900
    job.say(
        "[E socket.cpp:860] [c10d] The client socket has timed out after 900s while trying to connect to (node001, 29500).",
        4,
    )
    job.traceback(
        4,
        "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
        "Timed out waiting for rendezvous",
        "rdzv.py",
    )
    return job, Truth("rendezvous", nobody=True)


def etcd(seed: int) -> tuple[Job, Truth]:
    job = startup(seed)
    job.traceback(
        0,
        "etcd.EtcdConnectionFailed",
        "Connection to etcd failed due to MaxRetryError(\"HTTPConnectionPool(host='10.0.0.1', port=2379): Max retries exceeded with url: /version (Caused by NewConnectionError: [Errno 111] Connection refused\")",
    )
    return job, Truth("etcd", nobody=True)


def missing_env(seed: int) -> tuple[Job, Truth]:
    job = startup(seed)
    job.traceback(
        0,
        "RuntimeError",
        "Missing required environment variables: ['RANK', 'LOCAL_RANK', 'WORLD_SIZE']",
    )
    return job, Truth("missing-env", nobody=True)


def config(seed: int) -> tuple[Job, Truth]:
    job = startup(seed)
    for rank in range(RANKS):
        job.traceback(
            rank,
            "ConfigurationError",
            "Configuration error in 'scaling': Unknown scaling strategy 'invalid'. Valid options: ['variable_batch', 'constant_batch']",
        )
    job.torchrun_end(0, 1)
    return job, Truth("config", nobody=True)


def checkpoint_load(seed: int) -> tuple[Job, Truth]:
    job = startup(seed)
    job.traceback(
        1,
        "RuntimeError",
        'Error(s) in loading state_dict for LlamaForCausalLM:\n\tMissing key(s) in state_dict: "lm_head.weight".',
    )
    job.torchrun_end(1, 1)
    return job, Truth("checkpoint-load", rank=1)


def topology(seed: int) -> tuple[Job, Truth]:
    job = startup(seed)
    job.traceback(
        0,
        "deepspeed.runtime.zero.utils.ZeRORuntimeException",
        "The checkpoint being loaded used a DP world size of 16 but the current world size is 8. Automatic adjustment of ZeRO's optimizer state partitioning with a new world size is not currently supported.",
    )
    job.torchrun_end(0, 1)
    return job, Truth("topology-change", nobody=True)


def xla_compile(seed: int) -> tuple[Job, Truth]:
    job = startup(seed)
    job.say("Compilation of jit_train_step takes long", 0)
    job.traceback(
        0,
        "jaxlib.xla_extension.XlaRuntimeError",
        "INTERNAL: ptxas exited with non-zero error code 65280, output: ptxas fatal : Value 'sm_100' is not defined for option 'gpu-name'",
    )
    for rank in range(1, RANKS):
        job.say(
            f"E{glog(job.now)} 1044 coordination_service_agent.cc:332] Polled an error from coordination service (this can be an error from this or another task).",
            rank,
            after=100.0 if rank == 1 else 0.01,
        )
    return job, Truth("xla-compile", rank=0)


def kernel(when: float) -> str:
    from datetime import datetime, timezone

    return datetime.fromtimestamp(when, timezone.utc).strftime("%a %b %d %H:%M:%S %Y")


SCENARIOS: dict[str, Scenario] = {
    function.__name__: function
    for function in (
        nccl_timeout,
        nccl_timeout_nobody,
        python_exception,
        oom_gpu,
        oom_host,
        signal_kill,
        segfault,
        gpu_lost,
        ecc,
        hang,
        cancelled,
        preempted,
        heartbeat,
        actor_fail,
        node_fail,
        checkpoint_fs,
        storage,
        data_loading,
        nan_loss,
        throughput,
        completed,
        soft_success,
        running,
        unknown_death,
        nccl_init,
        port_in_use,
        rendezvous,
        etcd,
        missing_env,
        config,
        checkpoint_load,
        topology,
        xla_compile,
    )
}

__all__ = ["NODES", "SCENARIOS", "START", "Truth", "node_of"]

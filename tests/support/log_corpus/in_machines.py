# ruff: noqa: E501 - log lines are as long as they are
"""Failures of machines: GPUs, nodes, file systems."""

from __future__ import annotations

from tests.support.log_corpus.beginnings import begun
from tests.support.log_corpus.job import PIDS, RANKS, Job, bar, glog, kernel, stamp
from tests.support.log_corpus.truth import Scenario, Truth


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


SCENARIOS: tuple[Scenario, ...] = (
    gpu_lost,
    ecc,
    heartbeat,
    node_fail,
    checkpoint_fs,
    storage,
    data_loading,
)

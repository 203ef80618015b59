# ruff: noqa: E501 - log lines are as long as they are
"""Failures of ranks: what a rank did, or what was done to it."""

from __future__ import annotations

from tests.support.log_corpus.beginnings import begun
from tests.support.log_corpus.job import PIDS, RANKS, Job, bar, kernel, megatron
from tests.support.log_corpus.truth import Scenario, Truth


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


SCENARIOS: tuple[Scenario, ...] = (
    nccl_timeout,
    nccl_timeout_nobody,
    python_exception,
    oom_gpu,
    oom_host,
    signal_kill,
    segfault,
    actor_fail,
)

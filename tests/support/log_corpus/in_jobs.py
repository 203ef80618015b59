# ruff: noqa: E501 - log lines are as long as they are
"""What becomes of whole jobs: they hang, are ended, degrade, or end well."""

from __future__ import annotations

from tests.support.log_corpus.beginnings import begun
from tests.support.log_corpus.job import PIDS, RANKS, Job, glog, maxtext, stamp
from tests.support.log_corpus.truth import Scenario, Truth


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


SCENARIOS: tuple[Scenario, ...] = (
    hang,
    cancelled,
    preempted,
    nan_loss,
    throughput,
    completed,
    soft_success,
    running,
    unknown_death,
)

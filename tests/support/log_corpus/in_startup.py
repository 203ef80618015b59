# ruff: noqa: E501 - log lines are as long as they are
"""Failures before the first step."""

from __future__ import annotations

from tests.support.log_corpus.beginnings import startup
from tests.support.log_corpus.job import PIDS, RANKS, Job, glog
from tests.support.log_corpus.truth import Scenario, Truth


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


SCENARIOS: tuple[Scenario, ...] = (
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

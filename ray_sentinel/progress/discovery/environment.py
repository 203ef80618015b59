"""The identity of a process, by the environment variables that it was started with.

One table for both sides: the rank reads its own environment when it attaches, the agent reads
``/proc/<pid>/environ`` of processes that never did. Launchers and what they set:

========== ============================ ============================ ===========================
torchrun   RANK                         WORLD_SIZE                   LOCAL_RANK
Open MPI   OMPI_COMM_WORLD_RANK         OMPI_COMM_WORLD_SIZE         OMPI_COMM_WORLD_LOCAL_RANK
MPICH, ... PMI_RANK                     PMI_SIZE                     MPI_LOCALRANKID
MVAPICH    MV2_COMM_WORLD_RANK          MV2_COMM_WORLD_SIZE          MV2_COMM_WORLD_LOCAL_RANK
JAX        JAX_PROCESS_ID               JAX_NUM_PROCESSES            JAX_LOCAL_PROCESS_ID
Cloud TPU  TPU_WORKER_ID                (TPU_WORKER_HOSTNAMES)
Slurm      SLURM_PROCID                 SLURM_STEP_NUM_TASKS         SLURM_LOCALID
========== ============================ ============================ ===========================

The first line that is complete wins. Slurm comes last because ``srun`` often starts a launcher, and
sets ``SLURM_PROCID`` in a batch script too: it counts only inside a step of several tasks.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.kernel_files import parse_environ

SCHEMES: tuple[tuple[str, str, str, str], ...] = (
    ("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("mpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("mpi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("mpi", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK"),
    ("jax", "JAX_PROCESS_ID", "JAX_NUM_PROCESSES", "JAX_LOCAL_PROCESS_ID"),
    ("tpu", "TPU_WORKER_ID", "", ""),
    ("slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
)

ROLE_VARIABLE = "RAY_SENTINEL_ROLE"
"""The variable that is set in every process of ours; none of these is ever a rank."""

RECORD_DIR_VARIABLE = "RAY_SENTINEL_RECORD_DIR"

_JOB_VARIABLES = ("RAY_SENTINEL_JOB", "TORCHELASTIC_RUN_ID")
_ATTEMPT_VARIABLES = ("RAY_SENTINEL_ATTEMPT", "TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")
_GPU_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_LOOPBACK = re.compile(
    r"^(localhost(\.localdomain)?|127(\.\d{1,3}){3}|\[::1\]|::1)(?=:\d+$|$)", re.IGNORECASE
)
_OTHER_VARIABLES = (
    "MASTER_ADDR",
    "MASTER_PORT",
    "JAX_COORDINATOR_ADDRESS",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "PMIX_NAMESPACE",
    "TPU_WORKER_HOSTNAMES",
    "GROUP_RANK",
    *_GPU_VARIABLES,
    ROLE_VARIABLE,
    RECORD_DIR_VARIABLE,
)

VARIABLES: frozenset[str] = frozenset(
    name
    for name in (
        *(name for _, *names in SCHEMES for name in names),
        *_JOB_VARIABLES,
        *_ATTEMPT_VARIABLES,
        *_OTHER_VARIABLES,
    )
    if name
)
"""Every variable that is read, and every one that a process of ours must not inherit from a
rank."""

IDENTITY_VARIABLES: frozenset[str] = VARIABLES - {
    ROLE_VARIABLE,
    RECORD_DIR_VARIABLE,
    *_GPU_VARIABLES,
}
"""What must be blanked in the environment of a process of ours that a rank started."""


class ToldRank(msgspec.Struct, frozen=True, kw_only=True):
    """What one source says of a process: a launcher's variables, a library in it, a log."""

    source: str
    """As in ``RankIdentity``, or "ray" for the order of Ray's actors."""
    rank: int
    world_size: int | None = None
    local_rank: int | None = None
    job: str = ""
    """Empty where the source names none."""


def rank_from(environ: Mapping[str, str]) -> ToldRank | None:
    """The rank that a launcher assigned to the process; None if none did.

    Variables that are not numbers, or out of range, count as not set: they come from outside.
    """
    for scheme, rank_name, size_name, local_name in SCHEMES:
        rank = _number(environ, rank_name)
        if rank is None:
            continue
        size = _number(environ, size_name)
        if scheme == "tpu":
            size = len(environ.get("TPU_WORKER_HOSTNAMES", "").split(",")) or None
        if scheme in ("slurm", "tpu") and (size is None or size < 2):
            continue
        if size is not None and rank >= size:
            continue
        return ToldRank(
            source=scheme,
            rank=rank,
            world_size=size,
            local_rank=_number(environ, local_name),
        )
    return None


def job_from(environ: Mapping[str, str], host: str = "") -> str:
    """The job's name, equal for all of its ranks; empty if the environment does not name one.

    ``RAY_SENTINEL_JOB``, else torchrun's run id unless it is the default "none", else the
    rendezvous address, else JAX's coordinator, else Slurm's job and step, else MPI's namespace.
    ``host`` is this machine's name; by default the one that it reports itself.
    """
    if job := environ.get("RAY_SENTINEL_JOB", ""):
        return job
    run = environ.get("TORCHELASTIC_RUN_ID", "")
    if run and run != "none":
        return run
    if address := environ.get("MASTER_ADDR", ""):
        port = environ.get("MASTER_PORT", "")
        return _seen_from_outside(f"{address}:{port}" if port else address, host)
    if coordinator := environ.get("JAX_COORDINATOR_ADDRESS", ""):
        return _seen_from_outside(coordinator, host)
    if job := environ.get("SLURM_JOB_ID", ""):
        step = environ.get("SLURM_STEP_ID", "")
        return f"slurm-{job}.{step}" if step else f"slurm-{job}"
    return environ.get("PMIX_NAMESPACE", "")


def _seen_from_outside(address: str, host: str) -> str:
    """The address; for a loopback address, which each machine has, this machine's name takes its
    place."""
    return _LOOPBACK.sub(host or os.uname().nodename, address, count=1)


def attempt_from(environ: Mapping[str, str]) -> int:
    """How often the job was restarted before this process; 0 if no launcher counts."""
    for name in _ATTEMPT_VARIABLES:
        number = _number(environ, name)
        if number is not None:
            return number
    return 0


def gpus_from(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The GPUs that the process may use, as the variable names them: indices or UUIDs."""
    for name in _GPU_VARIABLES:
        if devices := environ.get(name, ""):
            return tuple(device.strip() for device in devices.split(",") if device.strip())
    return ()


def launch_variables(data: bytes) -> dict[str, str]:
    """The ``VARIABLES`` in a ``/proc/<pid>/environ``."""
    found = parse_environ(data, "replace")
    return {name: value for name, value in found.items() if name in VARIABLES}


def _number(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "") if name else ""
    # int() takes "1_0", " 1" and digits of other scripts; a launcher writes none of them.
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        return None
    return int(text)

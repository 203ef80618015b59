"""The environment that our actors run in: not the rank's, not the first driver's.

An actor inherits the runtime environment of the job that made it, so everything is made by jobs of
our own (see ``cluster.connect``), and the variables that tell a process that it is a rank are
blanked: a debugger, a collector or the discovery of ranks must not take our processes for one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from typing import Any

from ray_sentinel import regex as re
from ray_sentinel.progress.discovery.environment import ROLE_VARIABLE
from ray_sentinel.trusted_path import TRUSTED_UIDS_VARIABLE

IDENTITY = re.compile(
    r"^(RANK|LOCAL_RANK|GROUP_RANK|ROLE_RANK|ROLE_NAME|NODE_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE"
    r"|GROUP_WORLD_SIZE|ROLE_WORLD_SIZE|CUDA_VISIBLE_DEVICES|HIP_VISIBLE_DEVICES"
    r"|ROCR_VISIBLE_DEVICES|RAY_SENTINEL_JOB"
    r"|(MASTER|TORCHELASTIC|TORCH_NCCL|TORCH_FR|SLURM|OMPI|PMI|PMIX|PALS|JAX|NCCL|CUDA_COREDUMP"
    r"|CUDA_ENABLE)_.*)$"
)
"""Variables that say which rank a process is, or that change how its tools behave."""

ALWAYS_BLANK = (
    "RANK",
    "LOCAL_RANK",
    "GROUP_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_JOB_ID",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "RAY_SENTINEL_JOB",
)
"""Variables that are blanked even where the deployer does not have them: a raylet may have been
started with them."""

_OWN = {
    ROLE_VARIABLE: "actor",
    "RAY_worker_niceness": "0",
    "RAY_task_events_report_interval_ms": "0",
    "RAY_event_stats": "0",
}
"""Settings for our own processes. Ray makes its workers nice (15): where ranks keep all CPUs of a
host busy, an agent would take a minute to start, and evidence would come late. Collectors are nice,
see ``collect.child``. Nobody needs Ray's own records of our calls, one a second from each agent:
without them, and without the statistics of its event loops, an agent takes a sixth less CPU."""

_NEVER_INHERITED = ("RAY_JOB_CONFIG_JSON_ENV_VAR", "RAY_RUNTIME_ENV_HOOK", "PYTHONSTARTUP")
"""Variables that would bring somebody else's runtime environment or code into our job."""


def actor_variables(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """``env_vars`` of our runtime environment; Ray can set a variable to nothing, not remove it."""
    blank = set(ALWAYS_BLANK) | {name for name in environ if IDENTITY.match(name)}
    blank -= {"CUDA_VISIBLE_DEVICES"}  # Ray's own, set by it for every worker
    # The agents trust whom the deployer trusts, even if their raylets were not told.
    handed = {name: environ[name] for name in (TRUSTED_UIDS_VARIABLE,) if environ.get(name)}
    return {**dict.fromkeys(sorted(blank), ""), **_OWN, **handed}


def forget_identity(environ: MutableMapping[str, str] = os.environ) -> None:
    """Remove identity variables from this process, so that its children do not inherit them."""
    for name in [name for name in environ if IDENTITY.match(name)]:
        del environ[name]


def helper_variables(environ: Mapping[str, str], path: list[str]) -> dict[str, str]:
    """The environment of a helper process that has to import what its caller can import."""
    kept = {
        name: value
        for name, value in environ.items()
        if not IDENTITY.match(name) and name not in _NEVER_INHERITED
    }
    kept["PYTHONPATH"] = os.pathsep.join(
        entry for entry in dict.fromkeys(path) if entry and os.path.isabs(entry)
    )
    return kept


def runtime_env(modules: list[str], excludes: list[str]) -> dict[str, Any]:
    """The runtime environment of our jobs, inherited by all our actors."""
    return {"py_modules": modules, "excludes": excludes, "env_vars": actor_variables()}

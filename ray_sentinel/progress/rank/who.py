"""Determines, inside a process, which rank of which job it is.

The rank, its world size and local rank come together from the first of: the caller's arguments,
Ray Train's context, ``torch.distributed`` once initialised, the launcher's variables
(``environment``), JAX once its distributed runtime is up. If none of them knows, the process is
taken for the only one of its job, the identity says so (``assumed``), and the companion thread asks
again until one does. The job's name comes from the arguments, ``RAY_SENTINEL_JOB``, Ray Train's
experiment, the launcher's variables, or is "default".

Nothing is imported here: a library that the process has not imported knows nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import msgspec

from ray_sentinel.progress.discovery.environment import (
    SCHEMES,
    ToldRank,
    attempt_from,
    gpus_from,
    job_from,
    rank_from,
)
from ray_sentinel.progress.identity import RankIdentity

DEFAULT_JOB = "default"
_SCHEMES = frozenset(scheme for scheme, *_ in SCHEMES)


def resolve(
    job: str | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    modules: Mapping[str, ModuleType] | None = None,
) -> RankIdentity:
    """Which rank this process is, from the arguments and the other sources."""
    loaded = sys.modules if modules is None else modules
    launcher = rank_from(environ)
    answer = _ray_train(loaded) or _torch(loaded) or launcher or _jax(loaded)
    if rank is not None:
        same = answer if answer is not None and answer.rank == rank else None
        answer = msgspec.structs.replace(same or ToldRank(source="", rank=rank), source="argument")
    if answer is None:
        answer = ToldRank(source="assumed", rank=0)
    named = job or environ.get("RAY_SENTINEL_JOB", "") or answer.job or job_from(environ)
    local = answer.local_rank
    if local is None and launcher is not None and launcher.rank == answer.rank:
        local = launcher.local_rank
    return RankIdentity(
        job=named or DEFAULT_JOB,
        rank=answer.rank,
        attempt=attempt_from(environ),
        world_size=world_size if world_size is not None else answer.world_size,
        local_rank=local,
        host=os.uname().nodename,
        node=_ray_node(loaded),
        gpus=gpus_from(environ),
        source=answer.source,
    )


def is_sure(identity: RankIdentity, modules: Mapping[str, ModuleType] | None = None) -> bool:
    """Whether the process certainly is the rank that ``resolve`` takes it for.

    Not if no source said so; nor in a Ray driver that merely inherited variables which a pod or a
    Slurm step gives to everything in it: it may be one that only starts the ranks.
    """
    if identity.assumed:
        return False
    for_all = identity.source == "slurm" or (
        identity.source in _SCHEMES and identity.local_rank is None
    )
    return not (for_all and _drives_ray(sys.modules if modules is None else modules))


def _drives_ray(modules: Mapping[str, ModuleType]) -> bool:
    """Whether it is connected to a Ray cluster, and not as one of its workers."""
    ray: Any = modules.get("ray")
    try:
        if ray is None or not ray.is_initialized():
            return False
        client: Any = modules.get("ray.util.client")
        if client is not None and client.ray.is_connected():
            return True
        worker: Any = modules.get("ray._private.worker")
        return bool(worker.global_worker.mode == worker.SCRIPT_MODE)
    except (AttributeError, RuntimeError):
        return False


def _ray_train(modules: Mapping[str, ModuleType]) -> ToldRank | None:
    train: Any = modules.get("ray.train")
    if train is None or not hasattr(train, "get_context"):
        return None
    session: Any = modules.get("ray.train._internal.session")
    second: Any = modules.get("ray.train.v2._internal.execution.context")
    get_session = getattr(session, "get_session", None)
    in_first = callable(get_session) and get_session() is not None
    in_second = getattr(second, "_train_context", None) is not None
    if not (in_first or in_second):
        # Outside a worker the first version of Ray Train warns and the second one raises.
        return None
    try:
        context = train.get_context()
        rank = context.get_world_rank()
        return ToldRank(
            source="ray-train",
            rank=int(rank),
            world_size=int(context.get_world_size()),
            local_rank=int(context.get_local_rank()),
            job=str(context.get_experiment_name() or ""),
        )
    except (RuntimeError, AttributeError, TypeError, ValueError):
        return None


def _torch(modules: Mapping[str, ModuleType]) -> ToldRank | None:
    distributed: Any = modules.get("torch.distributed")
    try:
        if distributed is None or not distributed.is_initialized():
            return None
        return ToldRank(
            source="torch",
            rank=int(distributed.get_rank()),
            world_size=int(distributed.get_world_size()),
        )
    except (AttributeError, RuntimeError, ValueError):
        # Half imported, built without distributed, or being torn down at this moment.
        return None


def _jax(modules: Mapping[str, ModuleType]) -> ToldRank | None:
    # jax.process_index() would start the backends, which may take minutes; the state of
    # jax.distributed only holds what initialize() was told.
    distributed: Any = modules.get("jax._src.distributed")
    state = getattr(distributed, "global_state", None)
    if state is None or getattr(state, "client", None) is None:
        return None
    rank, size = getattr(state, "process_id", None), getattr(state, "num_processes", None)
    if not isinstance(rank, int):
        return None
    return ToldRank(source="jax", rank=rank, world_size=size if isinstance(size, int) else None)


def _ray_node(modules: Mapping[str, ModuleType]) -> str:
    ray: Any = modules.get("ray")
    try:
        if ray is None or not ray.is_initialized():
            return ""
        return str(ray.get_runtime_context().get_node_id())
    except (AttributeError, RuntimeError):
        return ""

"""What Ray has, what it gave away, and which requests wait; for a process that is connected."""

from __future__ import annotations

import json
from typing import Any

from ray_sentinel.actors.ray_client import client_of
from ray_sentinel.evidence.node.ray_status import read_status
from ray_sentinel.model.health import RayResources


def ray_resources(ray: Any) -> tuple[RayResources, str]:
    """(the resources; why waiting requests could not be asked for, or empty)."""
    have, free = ray.cluster_resources(), ray.available_resources()
    demands, problem = _demands(ray)

    def given(name: str) -> float:
        return max(0.0, round(float(have.get(name, 0.0)) - float(free.get(name, 0.0)), 4))

    told = RayResources(
        gpus_total=have.get("GPU", 0.0),
        gpus_allotted=given("GPU"),
        cpus_total=have.get("CPU", 0.0),
        cpus_allotted=given("CPU"),
        demands=demands,
        nodes=sum(1 for node in ray.nodes() if node.get("Alive")),
    )
    return told, problem


def _demands(ray: Any) -> tuple[tuple[str, ...], str]:
    """What ``ray status`` would say: read as it does, for its own process would need the token."""
    if client_of(ray) is not None:
        return (), "which requests wait is not told through Ray Client (ray://)"
    try:
        from ray._private import ray_constants
        from ray.autoscaler._private.commands import debug_status
        from ray.experimental.internal_kv import _internal_kv_get

        text = debug_status(
            _internal_kv_get(ray_constants.DEBUG_AUTOSCALING_STATUS),
            _internal_kv_get(ray_constants.DEBUG_AUTOSCALING_ERROR),
            address=ray.get_runtime_context().gcs_address,
        )
    except (ImportError, AttributeError, TypeError, ValueError, KeyError, RuntimeError) as error:
        # Private functions, which another version of Ray may not have.
        return (), f"this version of Ray does not tell which requests wait: {error}"
    told = read_status(str(text))
    return (told.demands, "") if told is not None else ((), "Ray does not tell which requests wait")


SUBMITTED_KEY = b"_ray_internal_job_info_"
SUBMITTED_NAMESPACE = b"job"
"""Where Ray's job manager keeps what it knows of a submitted job, as JSON: ``JobInfoStorageClient``
in ``ray/dashboard/modules/job/common.py``."""


def submitted_jobs(ray: Any) -> tuple[str, ...]:
    """Ids of the jobs of ``ray job submit`` that run; empty where Ray does not tell."""
    try:
        from ray.experimental import internal_kv

        keys = internal_kv._internal_kv_list(SUBMITTED_KEY, namespace=SUBMITTED_NAMESPACE)
        found = {
            key.removeprefix(SUBMITTED_KEY).decode(): json.loads(
                internal_kv._internal_kv_get(key, namespace=SUBMITTED_NAMESPACE) or b"{}"
            )
            for key in keys
        }
    except (ImportError, AttributeError, TypeError, ValueError, RuntimeError):
        return ()  # private functions, which another version of Ray may not have
    return tuple(sorted(job for job, info in found.items() if info.get("status") == "RUNNING"))

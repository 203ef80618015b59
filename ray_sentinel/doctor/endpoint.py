"""torchrun's rendezvous settings: options, or the ``PET_`` variables that stand for them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ray_sentinel.doctor.plan import RunPlan
from ray_sentinel.text import port_number

DEFAULT_PORTS = {"etcd": 2379, "etcd-v2": 2379}
C10D_PORT = 29400
"""Default port of c10d in torch.distributed.elastic."""


class MeetingPoint(msgspec.Struct, frozen=True, kw_only=True):
    """The rendezvous endpoint of a run."""

    backend: str = ""
    endpoint: str = ""
    run_id: str = ""
    host: str = ""
    port: int = 0
    problem: str = ""
    """Why the endpoint cannot be read; empty if it can be."""

    @property
    def is_etcd(self) -> bool:
        """A server that must be up before the run."""
        return self.backend.startswith("etcd")


def meeting_point(plan: RunPlan, environ: Mapping[str, str]) -> MeetingPoint:
    """The endpoint from the plan, else from this node's variables."""
    backend = plan.rdzv_backend or environ.get("PET_RDZV_BACKEND", "")
    endpoint = plan.rdzv_endpoint or environ.get("PET_RDZV_ENDPOINT", "")
    run_id = plan.rdzv_id or environ.get("PET_RDZV_ID", "")
    bare = endpoint.partition("://")[2] or endpoint
    host, _, port = bare.rpartition(":")
    if not host or (port and "]" in port):
        host, port = bare, ""
    # An endpoint on etcd's port is an etcd, even if nobody named the backend.
    if not backend:
        backend = "etcd-v2" if port == "2379" else "c10d"
    number = port_number(port) if port else DEFAULT_PORTS.get(backend, C10D_PORT)
    return MeetingPoint(
        backend=backend,
        endpoint=endpoint,
        run_id=run_id,
        host=host.strip("[]"),
        port=number or 0,
        problem="" if number else f"{port!r} is no port: HOST:PORT is expected",
    )

"""A control store of Ray that gives the replies that a test wants."""

from __future__ import annotations

from typing import Any

from ray.core.generated import common_pb2, gcs_pb2

from ray_sentinel.actors.coordinator.ray.store import RayStore
from ray_sentinel.errors import UnreachableError


class Replies(RayStore):
    """Gives each method the reply that was set for it: a message, or a function of the request's
    fields. A method without a reply is missing, as in another version of Ray."""

    def __init__(self, **replies: Any) -> None:
        super().__init__("")
        self.replies = replies
        self.asked: list[str] = []

    def ask(self, service: str, method: str, **fields: Any) -> Any:
        self.asked.append(method)
        if method not in self.replies:
            raise UnreachableError(f"AttributeError: {method}Request")
        reply = self.replies[method]
        return reply(**fields) if callable(reply) else reply


def driver_worker(kind: str, traceback: str = "") -> Any:
    """The entry of a driver among the workers."""
    info = {"exception": traceback.encode()} if traceback else {}
    return gcs_pb2.WorkerTableData(
        exit_type=common_pb2.WorkerExitType.Value(kind), exit_detail="detail", worker_info=info
    )

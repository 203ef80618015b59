"""Which Ray node is drained, which is not, and what the store is asked."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from ray.core.generated import autoscaler_pb2, autoscaler_pb2_grpc

from ray_sentinel.actors.coordinator.ray.store import RayStore
from ray_sentinel.actors.deployment.draining import ask_to_drain, node_called
from ray_sentinel.actors.hosts import RayNode
from ray_sentinel.errors import SentinelError, UsageError

NODES = [
    RayNode(id="aa", hostname="head.lan", address="10.0.0.1", alive=True, is_head=True),
    RayNode(id="bb", hostname="gpu-1.lan", address="10.0.0.2", alive=True),
    RayNode(id="cc", hostname="gpu-2.lan", address="10.0.0.3", alive=True),
    RayNode(id="dd", hostname="gpu-2.lan", address="10.0.0.4", alive=True),
    RayNode(id="ee", hostname="gpu-9.lan", address="10.0.0.9", alive=False),
]


@pytest.mark.parametrize(
    ("host", "node"),
    [("gpu-1", "bb"), ("gpu-1.lan", "bb"), ("10.0.0.2", "bb"), ("10.0.0.4", "dd"), ("cc", "cc")],
)
def test_a_node_by_any_of_its_names(host: str, node: str) -> None:
    assert node_called(host, NODES).id == node


@pytest.mark.parametrize(
    ("host", "says"),
    [("gpu-9", "no living node"), ("gpu", "no living node"), ("head", "is the head"),
     ("gpu-2.lan", "2 Ray nodes are called")],
)  # fmt: skip
def test_a_node_that_is_not_drained(host: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        node_called(host, NODES)


class AutoscalerState(autoscaler_pb2_grpc.AutoscalerStateServiceServicer):  # type: ignore[misc]
    """Of a control store, the service that drains nodes."""

    def __init__(self, reply: Any) -> None:
        self.reply = reply
        self.asked: list[Any] = []

    def DrainNode(self, request: Any, context: Any) -> Any:
        self.asked.append(request)
        return self.reply


@contextmanager
def store_of(service: AutoscalerState | None) -> Iterator[RayStore]:
    """A control store with this service; with none at all where none is given."""
    server = grpc.server(futures.ThreadPoolExecutor(1))
    if service is not None:
        autoscaler_pb2_grpc.add_AutoscalerStateServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with RayStore(f"127.0.0.1:{port}") as store:
        yield store
    server.stop(None).wait()


def test_the_store_is_asked_for_a_node_that_may_be_at_work() -> None:
    service = AutoscalerState(autoscaler_pb2.DrainNodeReply(is_accepted=True))
    with store_of(service) as store:
        ask_to_drain(store, "bb", "Xid 79")
    (asked,) = service.asked
    assert (asked.node_id, asked.reason_message) == (b"\xbb", "Xid 79")
    assert asked.reason == autoscaler_pb2.DRAIN_NODE_REASON_PREEMPTION
    assert asked.deadline_timestamp_ms == 0


@pytest.mark.parametrize("refusal", ["it is busy", ""])
def test_a_refusal_is_told(refusal: str) -> None:
    reply = autoscaler_pb2.DrainNodeReply(rejection_reason_message=refusal)
    says = f"Ray refuses to drain it: {refusal or 'without a reason'}$"
    with store_of(AutoscalerState(reply)) as store, pytest.raises(SentinelError, match=says):
        ask_to_drain(store, "bb", "Xid 79")


def test_a_store_that_cannot_drain_is_told() -> None:
    with (
        store_of(None) as store,
        pytest.raises(SentinelError, match=r"cannot drain.*UNIMPLEMENTED"),
    ):
        ask_to_drain(store, "bb", "Xid 79")

"""Which Ray node is drained, which is not, and what the store is asked."""

from __future__ import annotations

from typing import Any

import pytest
from ray.core.generated import autoscaler_pb2

from ray_sentinel.actors.coordinator.ray.control_store import ControlStore
from ray_sentinel.actors.deployment.draining import node_called
from ray_sentinel.actors.hosts import RayNode
from ray_sentinel.errors import UsageError

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


@pytest.mark.parametrize(
    ("answer", "refusal"),
    [((True, ""), ""), ((False, "it is busy"), "it is busy"), ((False, ""), "without a reason")],
)
def test_the_store_is_asked_for_a_node_that_may_be_at_work(
    answer: tuple[bool, str], refusal: str
) -> None:
    class Client:
        asked: tuple[Any, ...] = ()

        def drain_node(self, *arguments: Any) -> tuple[bool, str]:
            self.asked = arguments
            return answer

    client = Client()
    assert ControlStore(client, None).drain("bb", "Xid 79") == refusal
    reason = autoscaler_pb2.DRAIN_NODE_REASON_PREEMPTION
    assert client.asked == ("bb", reason, "Xid 79", 0)

"""What either version of Ray's autoscaler says of new nodes, in its own messages."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest
from ray.core.generated import autoscaler_pb2, autoscaler_pb2_grpc

from ray_sentinel.actors.coordinator.ray.autoscaler import (
    MOST_BEYOND,
    AutoscalerView,
    cluster_status_of,
    status_of,
)
from ray_sentinel.actors.coordinator.ray.holders import Held, placement_of
from ray_sentinel.actors.coordinator.ray.store import RayStore
from ray_sentinel.errors import UnreachableError
from ray_sentinel.model.placement import NO_AUTOSCALER

OWN_TYPES = b'{"autoscaler_report": {"node_type_mapping": {"ab": "node_ab"}}}'


def reported(*, typed: bool = True) -> Any:
    """What it has reported: two nodes, one of which is gone."""
    reply = autoscaler_pb2.GetClusterStatusReply()
    reply.autoscaling_state.autoscaler_state_version = 2
    add = reply.cluster_resource_state.node_states.add
    add(node_id=b"a", status="RUNNING", ray_node_type_name="head" if typed else "")
    add(node_id=b"b", status="DEAD", ray_node_type_name="worker")
    return reply


def says(reply: Any) -> str:
    found = cluster_status_of(reply)
    assert found is not None
    return found.says


def test_version_1_adds_none_where_each_node_is_a_type_of_its_own() -> None:
    assert status_of(OWN_TYPES) == NO_AUTOSCALER
    launching = b'{"autoscaler_report": {"pending_launches": {"gpu": 2}}}'
    assert status_of(launching) == "the autoscaler waits for 2 new nodes"
    failed = b'{"autoscaler_report": {"failed_nodes": [["10.0.0.1", "gpu"]]}}'
    assert status_of(failed) == "1 node of the autoscaler failed"
    assert status_of(b"") == status_of(b"[") == status_of(b"{}") == ""


def test_version_2_adds_none_where_no_node_has_a_type() -> None:
    assert says(reported(typed=False)) == NO_AUTOSCALER
    assert says(reported()) == ""


def test_version_2_waits_for_nodes_and_some_have_failed() -> None:
    reply = reported()
    reply.autoscaling_state.failed_instance_requests.add(
        count=1, reason="an older reason", failed_ts=4
    )
    reply.autoscaling_state.failed_instance_requests.add(
        count=2, reason="InsufficientInstanceCapacity:\n p5.48xlarge", failed_ts=5
    )
    why = "(InsufficientInstanceCapacity: p5.48xlarge)"
    assert says(reply) == f"3 nodes of the autoscaler failed {why}"
    reply.autoscaling_state.pending_instance_requests.add(ray_node_type_name="gpu", count=1)
    reply.autoscaling_state.pending_instances.add(ray_node_type_name="gpu", details="starting")
    assert says(reply) == f"the autoscaler waits for 2 new nodes, and 3 failed before {why}"


def test_version_2_tells_what_no_kind_of_node_can_hold() -> None:
    reply = reported()
    state = reply.autoscaling_state
    state.infeasible_resource_requests.add().resources_bundle["GPU"] = 16.0
    gang = state.infeasible_gang_resource_requests.add()
    for cpus in (32.0, 1.0):
        gang.requests.add().resources_bundle["CPU"] = cpus
    found = placement_of(Held(cluster_status=reply, status=OWN_TYPES), {})
    assert found.beyond == (({"GPU": 16.0},), ({"CPU": 32.0}, {"CPU": 1.0}))
    for _ in range(10_000):
        state.infeasible_resource_requests.add().resources_bundle["GPU"] = 16.0
    assert len(placement_of(Held(cluster_status=reply), {}).beyond) == MOST_BEYOND


def test_where_version_2_has_reported_nothing_version_1_counts() -> None:
    nothing = autoscaler_pb2.GetClusterStatusReply()
    assert cluster_status_of(nothing) is None
    found = placement_of(Held(cluster_status=nothing, status=OWN_TYPES), {})
    assert found.autoscaler == NO_AUTOSCALER


class AutoscalerState(autoscaler_pb2_grpc.AutoscalerStateServiceServicer):  # type: ignore[misc]
    """Of a control store, the only service that answers."""

    def GetClusterStatus(self, request: Any, context: Any) -> Any:
        return reported(typed=False)


@pytest.fixture
def store() -> Iterator[RayStore]:
    server = grpc.server(futures.ThreadPoolExecutor(2))
    autoscaler_pb2_grpc.add_AutoscalerStateServiceServicer_to_server(AutoscalerState(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with RayStore(f"127.0.0.1:{port}") as asked:
        yield asked
    server.stop(None).wait()


def test_the_control_store_is_asked_for_it(store: RayStore) -> None:
    reply = store.ask("AutoscalerState", "GetClusterStatus")
    assert cluster_status_of(reply) == AutoscalerView(says=NO_AUTOSCALER)
    with pytest.raises(UnreachableError, match="UNIMPLEMENTED"):
        store.ask("JobInfo", "GetAllJobInfo")

"""Ray's control store asked for calls and resources, over gRPC, of a server in this process."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest
from ray.core.generated import gcs_service_pb2, gcs_service_pb2_grpc

from ray_sentinel.actors.coordinator.ray_calls import ControlStoreCalls
from ray_sentinel.actors.coordinator.ray_store import RayStore
from ray_sentinel.errors import UnreachableError


class Resources(gcs_service_pb2_grpc.NodeResourceInfoGcsServiceServicer):  # type: ignore[misc]
    """Two nodes; the only service that answers."""

    def GetAllAvailableResources(self, request: Any, context: Any) -> Any:
        reply = gcs_service_pb2.GetAllAvailableResourcesReply()
        for number in (1, 2):
            node = reply.resources_list.add()
            node.node_id = bytes([number]) * 4
            own = {"node:10.0.0.1": 1.0, "CPU_group_0_29a1": 2.0}
            for name, amount in {"CPU": 3.0 + number, "TPU": 1.0, **own}.items():
                node.resources_available[name] = amount
        return reply


@pytest.fixture
def store() -> Iterator[ControlStoreCalls]:
    server = grpc.server(futures.ThreadPoolExecutor(2))
    gcs_service_pb2_grpc.add_NodeResourceInfoGcsServiceServicer_to_server(Resources(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with RayStore(f"127.0.0.1:{port}") as asked:
        yield ControlStoreCalls(asked)
    server.stop(None).wait()


def test_what_is_free_is_told_by_node_but_for_rays_own_resources(store: ControlStoreCalls) -> None:
    assert store.look(0.0).free_on == {
        "01010101": {"CPU": 4.0, "TPU": 1.0},
        "02020202": {"CPU": 5.0, "TPU": 1.0},
    }


def test_a_part_that_is_refused_costs_that_part_alone(store: ControlStoreCalls) -> None:
    found = store.look(0.0)
    assert "does not tell its jobs" in found.problem
    assert "does not tell its calls" in found.problem
    assert "free resources" not in found.problem
    assert found.drivers == found.calls == ()


def test_the_whole_reason_of_a_refusal_is_told(store: ControlStoreCalls) -> None:
    found = store.look(0.0)
    assert "its jobs: UNIMPLEMENTED: Method not found!; " in found.problem


def test_a_closed_channel_answers_nobody() -> None:
    with RayStore("127.0.0.1:9") as asked:
        with pytest.raises(UnreachableError, match=r"AttributeError: .*Moon"):
            asked.ask("Moon", "GetAllJobInfo")
        with pytest.raises(UnreachableError, match=r"UNAVAILABLE: .*127.0.0.1:9"):
            asked.ask("JobInfo", "GetAllJobInfo")
    with pytest.raises(UnreachableError, match="closed"):
        asked.ask("JobInfo", "GetAllJobInfo")

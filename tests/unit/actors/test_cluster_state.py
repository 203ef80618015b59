"""What Ray's control store says, from messages as Ray builds them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from ray.core.generated import (
    autoscaler_pb2,
    autoscaler_pb2_grpc,
    common_pb2,
    gcs_pb2,
    gcs_service_pb2,
    gcs_service_pb2_grpc,
)

from ray_sentinel.actors.coordinator.ray.actors import MAX_SHARE
from ray_sentinel.actors.coordinator.ray.cluster_state import ClusterReader, cause_of
from ray_sentinel.actors.coordinator.ray.replies import plain
from ray_sentinel.clock import FakeClock


class AutoscalerState(autoscaler_pb2_grpc.AutoscalerStateServiceServicer):  # type: ignore[misc]
    """What is there, what is used, what is waited for."""

    def __init__(self) -> None:
        self.reply = reply()

    def GetClusterResourceState(self, request: Any, context: Any) -> Any:
        return self.reply


class ActorInfo(gcs_service_pb2_grpc.ActorInfoGcsServiceServicer):  # type: ignore[misc]
    """The table of actors; it takes ``seconds`` of ``clock`` to read."""

    def __init__(self, clock: FakeClock, table: list[Any], seconds: float) -> None:
        self.clock, self._table, self._seconds = clock, table, seconds
        self.asked = 0

    def GetAllActorInfo(self, request: Any, context: Any) -> Any:
        self.asked += 1
        self.clock.advance(self._seconds)
        return gcs_service_pb2.GetAllActorInfoReply(actor_table_data=self._table)


@contextmanager
def serving(*table: Any, seconds: float = 0.0) -> Iterator[tuple[ClusterReader, ActorInfo]]:
    """A reader of a control store with this table of actors."""
    server = grpc.server(futures.ThreadPoolExecutor(2))
    clock = FakeClock()
    actors = ActorInfo(clock, list(table), seconds)
    autoscaler_pb2_grpc.add_AutoscalerStateServiceServicer_to_server(AutoscalerState(), server)
    gcs_service_pb2_grpc.add_ActorInfoGcsServiceServicer_to_server(actors, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    reader = ClusterReader(f"127.0.0.1:{port}", clock.monotonic)
    yield reader, actors
    reader.close()
    server.stop(None).wait()


def reply() -> autoscaler_pb2.GetClusterResourceStateReply:
    found = autoscaler_pb2.GetClusterResourceStateReply()
    node = found.cluster_resource_state.node_states.add(
        node_ip_address="192.0.2.2", status=autoscaler_pb2.RUNNING
    )
    node.total_resources.update({"CPU": 8, "node:192.0.2.2": 1, "CPU_group_0_ab": 2})
    node.available_resources.update({"CPU": 3})
    waiting = found.cluster_resource_state.pending_resource_requests.add(count=3)
    waiting.request.resources_bundle.update({"GPU": 4})
    gang = found.cluster_resource_state.pending_gang_resource_requests.add()
    gang.requests.add().resources_bundle.update({"GPU": 1, "bundle_group_0_ab": 1})
    return found


def dead(number: int, message: str = "") -> gcs_pb2.ActorTableData:
    actor = gcs_pb2.ActorTableData(
        actor_id=bytes([number]), state=gcs_pb2.ActorTableData.DEAD, end_time=1000 * number
    )
    if message:
        actor.death_cause.actor_died_error_context.error_message = message
    return actor


def test_a_store_that_is_away_is_told_and_asked_again_when_it_is_back() -> None:
    server = grpc.server(futures.ThreadPoolExecutor(2))
    port = server.add_insecure_port("127.0.0.1:0")
    reader = ClusterReader(f"127.0.0.1:{port}")
    server.start()
    found = reader.read()
    assert found.problem.startswith("Ray's control store does not answer: UNIMPLEMENTED")
    assert not found.nodes
    server.stop(None).wait()
    assert "\n" not in reader.read().problem
    again = grpc.server(futures.ThreadPoolExecutor(2))
    autoscaler_pb2_grpc.add_AutoscalerStateServiceServicer_to_server(AutoscalerState(), again)
    actors = ActorInfo(FakeClock(), [], 0.0)
    gcs_service_pb2_grpc.add_ActorInfoGcsServiceServicer_to_server(actors, again)
    assert again.add_insecure_port(f"127.0.0.1:{port}") == port
    again.start()
    assert reader.read().nodes
    reader.close()
    again.stop(None).wait()


def test_an_answer_of_a_newer_ray_is_told() -> None:
    newer = AutoscalerState()
    newer.reply.cluster_resource_state.node_states[0].status = 99
    server = grpc.server(futures.ThreadPoolExecutor(1))
    autoscaler_pb2_grpc.add_AutoscalerStateServiceServicer_to_server(newer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    found = ClusterReader(f"127.0.0.1:{port}").read()
    assert found.problem.startswith("Ray's control store answers otherwise: ValueError: ")
    assert not found.nodes
    server.stop(None).wait()


def test_what_is_there_what_is_used_and_what_is_waited_for() -> None:
    alive = gcs_pb2.ActorTableData(state=gcs_pb2.ActorTableData.ALIVE)
    killed = dead(9, "Worker exit type: SYSTEM_ERROR Worker exit detail: ...")
    with serving(killed, alive, dead(3)) as (reader, _):
        found = reader.read()
    (node,) = found.nodes
    assert (node.address, node.status) == ("192.0.2.2", "RUNNING")
    assert (node.total, node.available) == ({"CPU": 8.0}, {"CPU": 3.0})
    assert found.asked == {"GPU": 13.0}
    assert found.actors == {"DEAD": 2, "ALIVE": 1}
    assert found.dead == {"SYSTEM_ERROR": 1, "UNSPECIFIED": 1}
    assert [actor.ended for actor in found.last_dead] == [3.0, 9.0]
    assert not found.problem


def test_of_very_many_dead_actors_the_last_are_told() -> None:
    with serving(*(dead(number % 250) for number in range(1000))) as (reader, _):
        found = reader.read()
    assert found.dead == {"UNSPECIFIED": 1000}
    assert len(found.last_dead) == 200
    assert min(actor.ended for actor in found.last_dead) == 200.0


@pytest.mark.parametrize(
    ("context", "cause"),
    [
        ("", ""),
        ("oom_context", "oom"),
        ("creation_task_failure_context", "creation_task_failure"),
        ("actor_died_error_context", "UNSPECIFIED"),
    ],
)
def test_why_an_actor_is_dead(context: str, cause: str) -> None:
    death = common_pb2.ActorDeathCause()
    if context:
        getattr(death, context).SetInParent()
    assert cause_of(death) == cause


def test_resources_that_ray_makes_for_itself() -> None:
    own = ["node:192.0.2.2", "node:__internal_head__", "CPU_group_ab", "bundle_group_0_ab"]
    assert [name for name in (*own, "CPU", "GPU", "accelerator_type:H100") if plain(name)] == [
        "CPU",
        "GPU",
        "accelerator_type:H100",
    ]


@pytest.mark.parametrize(("seconds", "most"), [(0.0, 60), (1.0, 12), (5.0, 3)])
def test_a_long_table_of_actors_is_asked_for_rarely(seconds: float, most: int) -> None:
    with serving(dead(3), dead(4), seconds=seconds) as (reader, actors):
        for _ in range(60):
            found = reader.read()
            assert found.actors == {"DEAD": 2}
            assert found.nodes
            actors.clock.advance(10.0)
        assert actors.asked <= most
        assert seconds * actors.asked <= 2 * seconds + MAX_SHARE * actors.clock.monotonic()

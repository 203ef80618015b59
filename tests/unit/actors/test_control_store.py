"""What Ray's control store says, from messages as Ray builds them."""

from __future__ import annotations

import pytest
from ray.core.generated import autoscaler_pb2, common_pb2, gcs_pb2
from ray.exceptions import RpcError

from ray_sentinel.actors.coordinator.ray.actors import MAX_SHARE
from ray_sentinel.actors.coordinator.ray.control_store import (
    ControlStore,
    cause_of,
    plain,
    unanswered,
)
from ray_sentinel.clock import FakeClock


class Client:
    """The store's answers, as bytes."""

    def __init__(self, reply: autoscaler_pb2.GetClusterResourceStateReply) -> None:
        self._reply = reply

    def get_cluster_resource_state(self, timeout_s: float) -> bytes:
        assert timeout_s > 0
        return bytes(self._reply.SerializeToString())


class Accessor:
    """A table of actors."""

    def __init__(self, *actors: gcs_pb2.ActorTableData) -> None:
        self._actors = actors

    def get_actor_table(self, job: object, state: object) -> list[bytes]:
        return [actor.SerializeToString() for actor in self._actors]


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


class Away:
    """A store that is away, as Ray's client tells it."""

    def get_cluster_resource_state(self, timeout_s: float) -> bytes:
        raise RpcError("Timed out while waiting for GCS to become available.")

    def drain_node(self, *_: object) -> None:
        raise RpcError("Timed out while waiting for GCS to become available.")


def test_a_store_that_is_away_is_told_and_no_error_of_ray_s_gets_out() -> None:
    store = ControlStore(Away(), Accessor())
    with pytest.raises(RuntimeError, match="Timed out"):
        store.cluster()
    with pytest.raises(RuntimeError, match="Timed out"):
        store.drain("n", "why")


def test_what_is_there_what_is_used_and_what_is_waited_for() -> None:
    alive = gcs_pb2.ActorTableData(state=gcs_pb2.ActorTableData.ALIVE)
    killed = dead(9, "Worker exit type: SYSTEM_ERROR Worker exit detail: ...")
    found = ControlStore(Client(reply()), Accessor(killed, alive, dead(3))).cluster()
    (node,) = found.nodes
    assert (node.address, node.status) == ("192.0.2.2", "RUNNING")
    assert (node.total, node.available) == ({"CPU": 8.0}, {"CPU": 3.0})
    assert found.asked == {"GPU": 13.0}
    assert found.actors == {"DEAD": 2, "ALIVE": 1}
    assert found.dead == {"SYSTEM_ERROR": 1, "UNSPECIFIED": 1}
    assert [actor.ended for actor in found.last_dead] == [3.0, 9.0]
    assert not found.problem


def test_of_very_many_dead_actors_the_last_are_told() -> None:
    table = [dead(number % 250) for number in range(1000)]
    found = ControlStore(Client(reply()), Accessor(*table)).cluster()
    assert found.dead == {"UNSPECIFIED": 1000}
    assert len(found.last_dead) == 200
    assert min(actor.ended for actor in found.last_dead) == 200.0


def test_an_answer_that_is_none() -> None:
    found = unanswered(RuntimeError("Deadline Exceeded\nmore"))
    assert found.problem.endswith("RuntimeError: Deadline Exceeded")
    assert not found.nodes


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
    clock = FakeClock()

    class Slow(Accessor):
        asked = 0

        def get_actor_table(self, job: object, state: object) -> list[bytes]:
            self.asked += 1
            clock.advance(seconds)
            return super().get_actor_table(job, state)

    accessor = Slow(dead(3), dead(4))
    store = ControlStore(Client(reply()), accessor, clock.monotonic)
    for _ in range(60):
        found = store.cluster()
        assert found.actors == {"DEAD": 2}
        assert found.nodes
        clock.advance(10.0)
    assert accessor.asked <= most
    assert seconds * accessor.asked <= seconds + MAX_SHARE * clock.monotonic() + seconds

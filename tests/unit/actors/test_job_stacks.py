"""Which agents are looked up when the jobs of a cluster are looked at, and what they are asked."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from ray_sentinel.actors.coordinator.gathering import job_stacks
from ray_sentinel.actors.coordinator.gathering.job_stacks import gather_look
from ray_sentinel.actors.messages import Connections, Sampled, pack
from ray_sentinel.actors.names import agent_name
from ray_sentinel.model.connections import AwaitedAnswer
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.ray_calls import RayActor, RayCalls

NODES = tuple(f"n{number}" for number in range(6))
ANSWERS = {"connections": pack(Connections()), "stacks": pack(Sampled())}


class LookedUpRay:
    """Ray with an agent on all nodes but the last; its handles answer as agents without stacks."""

    exceptions = ray.exceptions

    def __init__(self) -> None:
        self.looked_up: list[str] = []

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(gcs_address="")

    def nodes(self) -> list[dict[str, Any]]:
        return [{"NodeID": node, "Alive": True, "NodeManagerAddress": node} for node in NODES]

    def get_actor(self, name: str, namespace: str) -> Any:
        self.looked_up.append(name)
        if name == agent_name(NODES[-1]):
            raise ValueError(name)
        return self.agent(name)

    def agent(self, name: str) -> Any:
        calls = {
            method: SimpleNamespace(remote=partial(self.called, name, method)) for method in ANSWERS
        }
        return SimpleNamespace(**calls)

    def called(self, name: str, method: str, request: bytes) -> tuple[str, str]:
        return name, method

    def wait(
        self, refs: list[tuple[str, str]], num_returns: int, timeout: float
    ) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        return refs, []

    def get(self, ref: tuple[str, str]) -> bytes:
        return ANSWERS[ref[1]]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> LookedUpRay:
    actors = tuple(RayActor(id=node, job="01", kind="Trainer", node=node, pid=7) for node in NODES)
    monkeypatch.setattr(job_stacks, "GAP_SECONDS", 0.0)
    monkeypatch.setattr(job_stacks, "unfinished_calls", lambda *_, **__: RayCalls(actors=actors))
    return LookedUpRay()


def test_agents_that_are_known_are_not_looked_up(cluster: LookedUpRay) -> None:
    known = {node: cluster.agent(node) for node in NODES[:4]}
    look = gather_look(cluster, "01", agents=known)
    assert set(cluster.looked_up) == {agent_name(node) for node in NODES[4:]}
    assert look.notes == (f"node {NODES[-1]} has no agent: run `ray-sentinel up`",)
    assert [one.node for one in look.processes] == list(NODES)


def test_without_them_each_is_looked_up_once_in_a_look(cluster: LookedUpRay) -> None:
    gather_look(cluster)
    names = [agent_name(node) for node in NODES[:-1]]
    assert [name for name in cluster.looked_up if name in names] == names


def test_who_holds_a_lock_below_an_actor_is_looked_at_too(
    cluster: LookedUpRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiter, actor, child = (ProcessId(NODES[0], pid, 1) for pid in (6, 7, 8))
    lock = AwaitedAnswer(
        who=waiter, whom=actor, asker=waiter, answerer=child, since=1.0, lock="/data/lock"
    )
    monkeypatch.setitem(ANSWERS, "connections", pack(Connections(locks=(lock,))))
    look = gather_look(cluster, "01")
    assert set(look.answers) == {lock}
    assert [one.process.pid for one in look.processes if one.node == NODES[0]] == [8, 7]

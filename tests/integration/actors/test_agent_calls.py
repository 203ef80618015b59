"""Agents that answer when their asker has gone on."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest

from ray_sentinel.actors.coordinator.gathering.agents import Agents
from tests.support.ray_cluster import RayCluster
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


class BusyAgent:
    """Takes its time; what it is asked says what comes of it."""

    def sample(self, request: bytes) -> bytes:
        time.sleep(1.0)
        return b"late"

    def fail(self, request: bytes) -> bytes:
        time.sleep(1.0)
        raise ValueError("no")


class OneNode:
    """A fleet with one agent."""

    def __init__(self, agent: Any) -> None:
        self._agent = agent

    def handle(self, node_id: str) -> Any:
        return self._agent


def test_what_an_agent_answers_late_is_not_lost(ray_cluster: RayCluster) -> None:
    with ray_cluster.connected() as ray:
        agent = ray.remote(BusyAgent).options(num_cpus=0).remote()
        agents = Agents(cast(Any, OneNode(agent)))
        came: list[bytes] = []
        for method in ("fail", "sample"):
            answers, (problem,) = agents.ask(method, {"node": ()}, bytes, 0.1, came.append)
            assert answers == {}
            assert f"no answer to {method}" in problem
        eventually(lambda: came, "the answer", 30.0)
        assert came == [b"late"]

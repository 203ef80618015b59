"""Whom to scrape: asked of agents that come and go, and read from Ray's file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_sentinel.errors import UnreachableError
from ray_sentinel.store.prometheus.targets import Targets, ask, ray_targets
from tests.support.scraped import Agent


def lists(agent: Agent, *places: str) -> None:
    agent.pages["/sd"] = json.dumps([{"targets": places, "labels": {}}])


def die(agent: Agent) -> None:
    agent.shutdown()
    agent.server_close()


@pytest.fixture
def agents() -> Iterator[list[Agent]]:
    both = [Agent(), Agent()]
    yield both
    for agent in both:
        die(agent)


def test_any_agent_will_do(agents: list[Agent]) -> None:
    first, second = agents
    lists(first, first.place, second.place)
    targets = Targets(f"http://{first.place}/sd")
    assert targets.poll() == tuple(sorted([first.place, second.place]))
    die(first)
    lists(second, second.place, "127.0.0.9:9400")
    assert targets.poll() == tuple(sorted([second.place, "127.0.0.9:9400"]))
    die(second)
    assert targets.poll() == tuple(sorted([second.place, "127.0.0.9:9400"])), "the last known"


def test_what_is_no_agent_is_said(agents: list[Agent]) -> None:
    agents[0].pages["/sd"] = "<html>"
    with pytest.raises(UnreachableError, match="not with a list of agents"):
        ask(f"http://{agents[0].place}/sd")
    with pytest.raises(UnreachableError, match="does not answer"):
        Targets("http://127.0.0.1:1/sd")
    with pytest.raises(UnreachableError, match="is no address of a server"):
        ask("head:9400/sd")


def test_rays_file(tmp_path: Path) -> None:
    assert ray_targets(tmp_path, {}) == {}
    path = tmp_path / "prom_metrics_service_discovery.json"
    path.write_text('[{"labels": {"job": "ray"}, "targets": ["10.0.0.1:8080", "[fd00::1]:8081"]}]')
    assert ray_targets(tmp_path, {"10.0.0.1": "node1"}) == {
        "10.0.0.1:8080": "node1",
        "[fd00::1]:8081": "fd00::1",
    }
    path.write_text('[{"labels"')
    assert ray_targets(tmp_path, {}) == {}

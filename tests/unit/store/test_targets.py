"""Whom to scrape: asked of agents that come and go, and read from Ray's file."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_sentinel.errors import UnreachableError
from ray_sentinel.store.targets import Targets, ask, ray_targets


class Agent(http.server.ThreadingHTTPServer):
    def __init__(self) -> None:
        self.body = b"[]"
        agent = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(agent.body)))
                self.end_headers()
                self.wfile.write(agent.body)

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    def lists(self, *places: str) -> None:
        self.body = json.dumps([{"targets": places, "labels": {}}]).encode()

    def die(self) -> None:
        self.shutdown()
        self.server_close()


@pytest.fixture
def agents() -> Iterator[list[Agent]]:
    both = [Agent(), Agent()]
    yield both
    for agent in both:
        agent.die()


def test_any_agent_will_do(agents: list[Agent]) -> None:
    first, second = agents
    first.lists(first.place, second.place)
    targets = Targets(f"http://{first.place}/sd")
    assert targets.look() == tuple(sorted([first.place, second.place]))
    first.die()
    second.lists(second.place, "127.0.0.9:9400")
    assert targets.look() == tuple(sorted([second.place, "127.0.0.9:9400"]))
    second.die()
    assert targets.look() == tuple(sorted([second.place, "127.0.0.9:9400"])), "the last known"


def test_what_is_no_agent_is_said(agents: list[Agent]) -> None:
    agents[0].body = b"<html>"
    with pytest.raises(UnreachableError, match="not with a list of agents"):
        ask(f"http://{agents[0].place}/sd")
    with pytest.raises(UnreachableError, match="does not answer"):
        Targets("http://127.0.0.1:1/sd")
    with pytest.raises(UnreachableError, match="no address of an agent"):
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

"""The doctor on a real Ray cluster of three nodes."""

from __future__ import annotations

import json
import socket

import pytest

from tests.support.ray_cluster import RayCluster

pytestmark = pytest.mark.integration


def test_every_node_is_examined_at_once(ray_cluster: RayCluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        ended = ray_cluster.run(
            *("doctor", "--json", "--nodes", "3", "--port", str(port)),
            *("--interface", "nosuch0", "--skip", "limits"),
        )
    answer = json.loads(ended.stdout)
    assert ended.returncode == 1
    assert len(answer["nodes"]) == 3
    found: dict[str, list[dict[str, str]]] = {}
    for result in answer["results"]:
        found.setdefault(result["check"], []).append(result)
    assert found["nodes"][0]["outcome"] == "ok"
    for check in ("interfaces", "ports"):
        assert {result["host"] for result in found[check]} == set(answer["nodes"])
        assert {result["outcome"] for result in found[check]} == {"failure"}
    assert found["reachability"][0]["outcome"] == "ok"
    assert found["clock"][0]["outcome"] == "ok"
    assert found["versions"][0]["outcome"] == "ok"
    assert "limits" not in found


def test_a_node_that_has_not_joined(ray_cluster: RayCluster) -> None:
    ended = ray_cluster.run("doctor", "--json", "--nodes", "4", "--only", "nodes")
    assert ended.returncode == 1
    found = json.loads(ended.stdout)["results"]
    assert any("3 of 4 expected nodes have joined" in one["seen"] for one in found)


def test_no_cluster_where_one_is_named(ray_cluster: RayCluster) -> None:
    ended = ray_cluster.run("doctor", "--json", "--address", "127.0.0.1:9")
    assert ended.returncode == 3

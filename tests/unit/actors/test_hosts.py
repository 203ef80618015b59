"""What a node is called, and what Ray says of nodes."""

from __future__ import annotations

from ray_sentinel.actors.hosts import RayNode, host_label, ray_nodes


def node(node_id: str, host: str, *, alive: bool = True) -> RayNode:
    return RayNode(id=node_id, hostname=host, address=f"10.0.0.{node_id}", alive=alive)


def test_a_dead_node_does_not_take_the_name_away() -> None:
    one = node("1", "gpu-1.cluster.local")
    assert host_label(one, [one, node("2", "gpu-1", alive=False)]) == "gpu-1"
    assert host_label(one, [one, node("2", "gpu-1")]) == "10.0.0.1"


def test_a_node_without_a_name_has_its_address() -> None:
    assert host_label(node("1", ""), [node("1", "")]) == "10.0.0.1"


def test_ray_nodes_reads_what_old_versions_leave_out() -> None:
    found = ray_nodes([{"NodeID": "a", "Alive": True}])["a"]
    assert found.alive
    assert not found.is_head
    assert found.death_reason == 0

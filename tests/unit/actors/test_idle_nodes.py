"""Which nodes have nothing to do, so that an autoscaler may take them."""

from __future__ import annotations

from pathlib import Path

from ray_sentinel.actors.coordinator import fleet


def test_a_node_is_left_when_idle_free_and_not_the_head() -> None:
    seconds = {"head": 700.0, "busy": 700.0, "free": 700.0, "young": 10.0}
    free = {"head", "free", "young"}
    assert fleet.to_release(seconds, free, {"head"}, 600.0) == {"free"}
    assert fleet.to_release(seconds, free, {"head"}, 0.0) == frozenset()


def test_our_own_group_is_no_work() -> None:
    total = {"a": {"CPU": 8.0, "node:10.0.0.1": 1.0, "bundle_group_0_x": 1000.0}}
    available = {"a": {"CPU": 8.0, "node:10.0.0.1": 0.999}}
    assert fleet.unused(total, available) == {"a"}


def test_an_autoscaler_is_seen(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/cmdline").write_bytes(b"python\0monitor.py\0--logs-dir=/x\0")
    assert not fleet.autoscales({}, tmp_path)
    (tmp_path / "7/cmdline").write_bytes(b"python\0monitor.py\0--autoscaling-config=/c.yaml\0")
    assert fleet.autoscales({}, tmp_path)
    assert fleet.autoscales({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, tmp_path)

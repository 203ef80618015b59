"""The collector of Ray: what it makes of what the control store said."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from ray_sentinel.api import Context, DeadActor, Event, NoData, RayCluster, RayNodeState, Sample
from ray_sentinel_plugins.ray_cluster import RayCollector
from tests.unit.plugins.test_raylets import COMMAND, process


@pytest.fixture
def collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RayCollector:
    """On the head."""
    process(tmp_path, 20, 1, *COMMAND, "--head")
    process(tmp_path, 40, 20, "python")
    monkeypatch.setattr("os.getpid", lambda: 40)
    return RayCollector(Context(proc=tmp_path))


def told(collector: RayCollector, cluster: RayCluster | None) -> list[Sample | Event]:
    collector.context = msgspec.structs.replace(collector.context, cluster=cluster)
    return list(collector.collect())


def test_nothing_is_made_up(collector: RayCollector) -> None:
    with pytest.raises(NoData, match="not been asked"):
        told(collector, None)
    with pytest.raises(RuntimeError, match="it is away"):
        told(collector, RayCluster(time=time.monotonic(), problem="it is away"))
    with pytest.raises(RuntimeError, match=r"not answered for 1\d\d s"):
        told(collector, RayCluster(time=time.monotonic() - 100))


def test_what_it_yields(collector: RayCollector) -> None:
    dead_node = RayNodeState(address="192.0.2.9", status="DEAD", total={"CPU": 64.0})
    node = RayNodeState(
        address="192.0.2.2", status="IDLE", total={"CPU": 8.0, "odd": 1.0}, available={"CPU": 3.0}
    )
    found = told(
        collector,
        RayCluster(
            time=time.monotonic(),
            nodes=(dead_node, node),
            asked={"GPU": 4.0},
            actors={"ALIVE": 2},
            dead={"RAY_KILL": 1},
        ),
    )
    series = {
        (sample.name, *(value for _, value in sample.labels)): sample.value
        for sample in found
        if isinstance(sample, Sample)
    }
    assert series == {
        ("ray_cluster_nodes", "DEAD"): 1,
        ("ray_cluster_nodes", "IDLE"): 1,
        ("ray_cluster_resource", "192.0.2.2", "CPU"): 8,
        ("ray_cluster_resource_used", "192.0.2.2", "CPU"): 5,
        ("ray_cluster_resource", "192.0.2.2", "odd"): 1,
        ("ray_cluster_resource_used", "192.0.2.2", "odd"): 1,
        ("ray_cluster_resource_asked", "CPU"): 0,
        ("ray_cluster_resource_asked", "GPU"): 4,
        ("ray_cluster_actors", "ALIVE"): 2,
        ("ray_cluster_dead_actors", "RAY_KILL"): 1,
    }


def test_a_death_is_told_once_and_only_where_nobody_wanted_it(collector: RayCollector) -> None:
    def events(*dead: DeadActor) -> list[str]:
        now = told(collector, RayCluster(time=time.monotonic(), last_dead=dead))
        return [event.attributes["actor"] for event in now if isinstance(event, Event)]

    old, wanted = DeadActor(id="a", cause="oom"), DeadActor(id="b", cause="RAY_KILL")
    new = DeadActor(id="c", cause="SYSTEM_ERROR", kind="Trainer", address="192.0.2.2")
    assert events(old) == []  # from before we looked
    assert events(old, wanted, new) == ["c"]
    assert events(wanted, new) == []

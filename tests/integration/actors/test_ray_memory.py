"""What Ray's memory monitor kills, on a node of its own that never has enough memory for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ray_sentinel.actors.coordinator.ray.deaths import ControlStoreDeaths, RayDeathWatch
from ray_sentinel.actors.coordinator.ray.store import RayStore
from ray_sentinel.actors.coordinator.ray.table import RayTable
from ray_sentinel.model.ray_deaths import RayDeath
from tests.support.ray_cluster import RayCluster
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


@pytest.fixture
def full_node() -> Iterator[RayCluster]:
    with pytest.MonkeyPatch.context() as patch:
        # Looked at rarely, so that an actor lives for a moment.
        patch.setenv("RAY_memory_usage_threshold", "0.01")
        patch.setenv("RAY_memory_monitor_refresh_ms", "2000")
        cluster = RayCluster(addresses=())
    yield cluster
    cluster.stop()


def test_the_memory_monitor_is_told_from_other_ends(full_node: RayCluster) -> None:
    told: list[RayDeath] = []
    with RayStore(full_node.address) as store:
        deaths = RayDeathWatch(ControlStoreDeaths(store), told.extend)
        table = RayTable(store, deaths.set_table)

        def is_told() -> bool:
            table.hurry()
            table.poll()
            deaths.poll()
            return bool(told)

        import ray

        ray.init(address=full_node.address, namespace="memory", log_to_driver=False)
        try:

            class Hungry:
                def work(self) -> None: ...

            kept = ray.remote(Hungry).options(num_cpus=0).remote()
            eventually(is_told, "the death is told", 60.0)
            del kept
        finally:
            ray.shutdown()
    (death,) = told
    assert (death.cause, death.role, death.witness) == ("oom-ray", "Hungry", "control store")
    assert "memory" in death.detail

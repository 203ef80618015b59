"""What the GPU of each rank does, as its node told of it."""

from __future__ import annotations

import threading

import pytest

from ray_sentinel.engine.last_hour.rank_gpus import rank_gpus
from ray_sentinel.model.gpus import GpuQuantity, HostRankGpus
from ray_sentinel.model.progress import Snapshot
from tests.support.engine_sim import Sim
from tests.support.samples import sampled

UTILISATION, POWER = "hw_gpu_utilization_ratio", "hw_gpu_power_watts"


def seen(sim: Sim, quantity: GpuQuantity, **values: float) -> dict[str, HostRankGpus]:
    """What is known of all ranks once node 0 has told ``values``, ten seconds ago."""
    view = sim.engine.view
    node = view.nodes[sim.node(0).id].node
    told = Snapshot(node=node, time=sim.now - 10, sequence=1, samples=sampled(values))
    view.telemetry.add(told, sim.now - 10, 0.0)
    found = rank_gpus(view, quantity, sim.now, threading.Lock())
    assert found.quantity == quantity
    return {one.host: one for one in found.hosts}


@pytest.mark.parametrize(("quantity", "name"), [("utilisation", UTILISATION), ("power", POWER)])
def test_each_rank_has_the_gpu_at_its_place(quantity: GpuQuantity, name: str) -> None:
    sim = Sim(world=4, nodes=2)
    sim.run(20)
    values = {f'{name}{{gpu="{index}"}}': 0.25 * (index + 1) for index in range(8)}
    (host,) = seen(sim, quantity, **values).values()
    assert host.pids == (1000, 1001)
    assert host.values == (0.25, 0.5)
    assert host.ages == pytest.approx((10.0, 10.0))


def test_a_rank_of_whose_gpu_nothing_is_told_has_no_value() -> None:
    sim = Sim(world=4, nodes=2)
    sim.run(20)
    (host,) = seen(sim, "power", **{f'{POWER}{{gpu="1"}}': 300.0}).values()
    assert (host.pids, host.values) == ((1001,), (300.0,))
    assert seen(sim, "utilisation", **{f'{POWER}{{gpu="0"}}': 300.0}) == {}

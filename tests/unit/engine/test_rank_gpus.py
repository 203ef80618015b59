"""What the GPU of each rank does, as its node told of it."""

from __future__ import annotations

import threading

import msgspec
import pytest

from ray_sentinel.engine.last_hour.rank_gpus import rank_gpus
from ray_sentinel.model.gpus import GpuQuantity, HostRankGpus
from ray_sentinel.model.progress import Snapshot
from tests.support.engine_sim import Sim
from tests.support.samples import sampled

UTILISATION, POWER = "hw_gpu_utilization_ratio", "hw_gpu_power_watts"


def seen(quantity: GpuQuantity, *given: tuple[str, ...], **values: float) -> list[HostRankGpus]:
    """What is known of the ranks of node 0, which has told ``values`` ten seconds ago. They were
    given these GPUs; one that was given none has its place there."""
    sim = Sim(world=4, nodes=2)
    sim.run(20)
    view = sim.engine.view
    for place, one in enumerate(view.jobs["job", 0].present):
        gpus = given[place] if place < len(given) else ()
        one.rank = msgspec.structs.replace(
            one.rank, local_rank=None if len(gpus) > 1 else place % 2, gpus=gpus
        )
    told = Snapshot(
        node=view.nodes["n0"].node, time=sim.now - 10, sequence=1, samples=sampled(values)
    )
    view.telemetry.add(told, sim.now - 10, 0.0)
    found = rank_gpus(view, quantity, sim.now, threading.Lock())
    assert found.quantity == quantity
    return list(found.hosts)


@pytest.mark.parametrize(("quantity", "name"), [("utilisation", UTILISATION), ("power", POWER)])
def test_each_rank_has_the_gpu_at_its_place(quantity: GpuQuantity, name: str) -> None:
    values = {f'{name}{{gpu="{index}"}}': 0.25 * (index + 1) for index in range(8)}
    (host,) = seen(quantity, **values)
    assert (host.host, host.pids, host.values) == ("host0", (1000, 1001), (0.25, 0.5))
    assert host.ages == pytest.approx((10.0, 10.0))


def test_a_rank_of_whose_gpu_nothing_is_told_has_no_value() -> None:
    (host,) = seen("power", **{f'{POWER}{{gpu="1"}}': 300.0})
    assert (host.pids, host.values) == ((1001,), (300.0,))
    assert seen("utilisation", **{f'{POWER}{{gpu="0"}}': 300.0}) == []


def test_a_gpu_is_found_by_its_uuid_and_several_have_their_mean() -> None:
    values = {f'{POWER}{{gpu="{index}"}}': 100.0 * index for index in range(4)}
    values |= {f'hw_gpu_info{{gpu="{index}",uuid="GPU-{index}"}}': 1.0 for index in range(4)}
    (host,) = seen("power", ("GPU-3",), ("0", "2"), **values)
    assert host.values == (300.0, 100.0)


def test_what_the_memory_is_a_part_of_must_be_known() -> None:
    values = {f'hw_gpu_vram_used_bytes{{gpu="{index}"}}': 5.0 for index in range(2)}
    (host,) = seen("memory", **values, **{'hw_gpu_vram_total_bytes{gpu="1"}': 20.0})
    assert (host.pids, host.values) == ((1001,), (0.25,))

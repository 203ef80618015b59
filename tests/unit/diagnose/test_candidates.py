"""What may have slowed a job is said with its place, whether or not that place is to blame."""

from __future__ import annotations

import pytest

from ray_sentinel.diagnose.detect import candidates
from tests.support.diagnosis import case_of
from tests.support.tsdb_scenarios.catalogue import scenario
from tests.support.tsdb_scenarios.world import World


@pytest.mark.parametrize(("name", "blamed"), [("hang-network-trigger", 0), ("network-one-link", 1)])
def test_ports_in_trouble_are_named_also_where_none_slows_the_steps(name: str, blamed: int) -> None:
    world, _ = scenario(name).make(100)
    (link,) = [one for one in candidates.find(case_of(world)) if one.cause == "rdma-link"]
    assert " of node" in link.text
    assert len(link.culprits) == blamed


def test_ports_that_lose_packets_in_a_congested_fabric_are_not_to_blame() -> None:
    world = World(seed=5, hosts=4, gpus=2, minutes=60)
    cells = world.after(0.45 * world.t[-1])
    for counter, rate in (("hw_rdma_rx_cnp_pkts_total", 4000), ("hw_rdma_tx_retx_pkts_total", 300)):
        world.rdma[counter][:2, :, cells] += rate
    world.slowdown[cells] *= 1.5
    world.play()
    found = candidates.find(case_of(world))
    assert [(one.cause, one.culprits) for one in found] == [("congestion", ())]


@pytest.mark.parametrize(("clocks", "named"), [(True, False), (False, True)])
def test_a_host_that_draws_less_at_its_usual_clock_waits_for_the_others(
    clocks: bool, named: bool
) -> None:
    world = World(seed=6, hosts=2, gpus=4, minutes=60, style="ours")
    cells = world.after(0.45 * world.t[-1])
    world.slowdown[cells] *= 1.4
    world.power_factor[1][:, cells] *= 0.8
    world.skip |= set() if clocks else {"hw_gpu_clock_mhz"}
    world.play()
    found = [one for one in candidates.find(case_of(world)) if one.cause == "power-drop"]
    assert bool(found) is named

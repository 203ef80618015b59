"""Jobs whose collectives run over TCP: there is no RDMA."""

from __future__ import annotations

import numpy as np

from tests.support.tsdb_scenarios import decoys
from tests.support.tsdb_scenarios.truth import Scenario, Truth
from tests.support.tsdb_scenarios.world import World


def _world(world: World) -> None:
    decoys.usual(world)
    world.skip |= {*world.rdma, "hw_rdma_port_state"}
    world.late.pop("hw_tcp_retransmits_total", None)


def _truth(world: World, playbook: str, cause: str, hosts: list[int], at: float) -> Truth:
    names = frozenset(world.names[host] for host in hosts)
    return Truth(playbook, cause, names, onset=world.begin + at)


def retransmits(world: World) -> Truth:
    """Steps are slow exactly while one host retransmits by the thousand, twice."""
    _world(world)
    end, host = float(world.t[-1]), int(world.rng.integers(world.hosts))
    factor = world.draw((1.3, 1.7))
    for start, stop in ((0.35, 0.5), (0.65, 0.8)):
        cells = world.after(start * end, stop * end)
        burst = world.rng.uniform(0.7, 1.3, int(cells.sum()))
        world.rates["hw_tcp_retransmits_total"][host, cells] += world.draw((1500, 3000)) * burst
        world.slowdown[cells] *= factor
    return _truth(world, "network-health", "tcp", [host], 0.35 * end)


def card(world: World) -> Truth:
    """A network card counts errors exactly while steps are slow."""
    _world(world)
    start, host = 0.5 * float(world.t[-1]), int(world.rng.integers(world.hosts))
    cells = world.after(start)
    world.rates["hw_net_rx_errors_total"][host, cells] += world.draw((5, 200))
    world.slowdown[cells] *= world.draw((1.3, 1.7))
    return _truth(world, "network-health", "nic", [host], start)


def storm_before_a_hang(world: World) -> Truth:
    """A storm of retransmits on one host begins a minute before the job stops."""
    _world(world)
    at = world.draw((0.55, 0.75)) * world.t[-1]
    world.halt = at
    host = int(world.rng.integers(world.hosts))
    cells = world.after(at - world.draw((40, 110)))
    size = int(cells.sum())
    world.rates["hw_tcp_retransmits_total"][host, cells] += world.rng.uniform(1500, 3500, size)
    world.rates["hw_tcp_abort_on_timeout_total"][host, np.flatnonzero(cells)[:8]] += 0.3
    return _truth(world, "hang", "tcp", [host], at)


def storm_without_effect(world: World) -> Truth:
    """Storage traffic retransmits while a job runs at full speed."""
    _world(world)
    decoys.tcp_storm(world, 0, 0.3 * world.t[-1], 0.4 * world.t[-1])
    return Truth("", "")


SCENARIOS = [
    Scenario("sockets-retransmits", retransmits, minutes=90),
    Scenario("sockets-card", card, minutes=75),
    Scenario("sockets-storm-before-a-hang", storm_before_a_hang),
    Scenario("sockets-storm-without-effect", storm_without_effect),
]

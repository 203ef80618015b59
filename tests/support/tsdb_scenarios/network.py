"""Networks that lose packets, and networks that only look so."""

from __future__ import annotations

import numpy as np

from tests.support.tsdb_scenarios import decoys
from tests.support.tsdb_scenarios.truth import Scenario, Truth
from tests.support.tsdb_scenarios.world import World

SLOWDOWN = (1.12, 1.45)
"""Factor on the step time while a link is bad."""


def bad_link(world: World, host: int, device: int, start: float, end: float,
              factor: float) -> None:  # fmt: skip
    cells = world.after(start, end)
    rate = world.draw((30, 5000))
    burst = world.rng.uniform(0.5, 1.5, int(cells.sum()))
    world.rdma["hw_rdma_tx_retx_pkts_total"][host, device, cells] += rate * burst
    world.rdma["hw_rdma_tx_ack_timeout_total"][host, device, cells] += world.draw((0.05, 8))
    world.slowdown[cells] = np.maximum(world.slowdown[cells], factor)
    world.power_factor[:, :, cells] *= 1.0 - 0.5 * (1.0 - 1.0 / factor)


def _named(
    world: World, links: list[tuple[int, int]], onset: float, cause: str = "rdma link"
) -> Truth:
    hosts = frozenset(world.names[host] for host, _ in links)
    devices = frozenset((world.names[host], f"rdma{device}") for host, device in links)
    return Truth("network-health", cause, hosts, devices=devices, onset=world.begin + onset)


def _pick(world: World) -> tuple[int, int]:
    return int(world.rng.integers(world.hosts)), int(world.rng.integers(world.devices))


def one_link(world: World) -> Truth:
    """One link is bad for the rest of the job."""
    decoys.usual(world)
    start = world.draw((0.4, 0.6)) * world.t[-1]
    link = _pick(world)
    bad_link(world, *link, start, np.inf, world.draw(SLOWDOWN))
    return _named(world, [link], start)


def phases(world: World) -> Truth:
    """Link X is bad, then none, then link Y: the step time follows."""
    decoys.usual(world)
    end = world.t[-1]
    first, second = _pick(world), _pick(world)
    if second[0] == first[0]:
        second = ((first[0] + 1) % world.hosts, second[1])
    bad_link(world, *first, 0.3 * end, 0.45 * end, world.draw(SLOWDOWN))
    bad_link(world, *second, 0.65 * end, 0.8 * end, world.draw(SLOWDOWN))
    return _named(world, [first, second], 0.3 * end)


def transient(world: World) -> Truth:
    """A link is bad for a while and recovers."""
    decoys.usual(world)
    end = world.t[-1]
    link = _pick(world)
    bad_link(world, *link, 0.45 * end, 0.65 * end, world.draw(SLOWDOWN))
    return _named(world, [link], 0.45 * end)


def beside_a_storm(world: World) -> Truth:
    """A bad link, while another host has far more TCP retransmits, and began earlier."""
    decoys.usual(world)
    start = 0.5 * world.t[-1]
    link = _pick(world)
    decoys.tcp_storm(world, (link[0] + 1) % world.hosts, start - 300, 1e9)
    bad_link(world, *link, start, np.inf, world.draw(SLOWDOWN))
    return _named(world, [link], start)


def exhaustion(world: World) -> Truth:
    """Retries run out on one port now and then: a hard link failure, the job survives."""
    decoys.usual(world)
    link = _pick(world)
    start = 0.4 * world.t[-1]
    cells = np.flatnonzero(world.after(start))[:: int(240 / world.interval)]
    world.rdma["hw_rdma_req_tx_retry_excd_err_total"][link[0], link[1], cells] += 0.2
    world.rdma["hw_rdma_tx_retx_pkts_total"][link[0], link[1], cells] += 50.0
    return _named(world, [link], start)


def flap(world: World) -> Truth:
    """A port goes down for half a minute and comes back."""
    decoys.usual(world)
    link = _pick(world)
    start = 0.5 * world.t[-1]
    world.port_state[link[0], link[1], world.after(start, start + 40)] = 0.0
    return _named(world, [link], start)


def congestion(world: World) -> Truth:
    """Congestion notices on most hosts, and slower steps: the fabric, no node."""
    decoys.usual(world)
    start = 0.45 * world.t[-1]
    cells = world.after(start)
    for host in range(world.hosts):
        rate = world.draw((50, 3000))
        world.rdma["hw_rdma_rx_cnp_pkts_total"][host][:, cells] += rate
    world.slowdown[cells] *= world.draw(SLOWDOWN)
    return Truth("network-health", "congestion", onset=world.begin + start)


SCENARIOS = [
    Scenario("network-one-link", one_link, minutes=75),
    Scenario("network-phases", phases, minutes=90),
    Scenario("network-transient", transient, minutes=90),
    Scenario("network-beside-a-storm", beside_a_storm, minutes=75),
    Scenario("network-retry-exhaustion", exhaustion, minutes=75),
    Scenario("network-port-flap", flap),
    Scenario("network-congestion", congestion, minutes=75),
]

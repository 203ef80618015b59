"""Collective hangs and what looks like them."""

from __future__ import annotations

from tests.support.tsdb_scenarios import decoys
from tests.support.tsdb_scenarios.truth import Scenario, Truth
from tests.support.tsdb_scenarios.world import GONE, REST, WAIT, WORK, World


def _stop(world: World) -> float:
    """Where the hang begins: 55 to 75 % into the job."""
    at = world.draw((0.55, 0.75)) * world.t[-1]
    world.halt = at
    return at


def busy_wait(world: World) -> Truth:
    """All GPUs poll at idle power; nothing else is wrong."""
    decoys.usual(world)
    at = _stop(world)
    return Truth("hang", "busy wait", onset=world.begin + at)


def partial(world: World) -> Truth:
    """Two GPUs a host entered the collective, the others rest."""
    decoys.usual(world)
    at = _stop(world)
    world.state[:, 2:, world.after(at)] = REST
    return Truth("hang", "partial busy wait", onset=world.begin + at)


def _link(world: World, host: int, device: int, at: float) -> Truth:
    name = world.names[host]
    devices = frozenset({(name, f"rdma{device}")})
    return Truth("hang", "rdma link", frozenset({name}), devices=devices, onset=world.begin + at)


def network_trigger(world: World) -> Truth:
    """Retransmits and ACK timeouts on one device begin up to two minutes before the stop."""
    decoys.usual(world)
    at = _stop(world)
    host, device = int(world.rng.integers(world.hosts)), int(world.rng.integers(world.devices))
    begin = at - world.draw((20, 120))
    cells = world.after(begin, at + world.draw((30, 600)))
    world.rdma["hw_rdma_tx_retx_pkts_total"][host, device, cells] += world.draw((40, 4000))
    world.rdma["hw_rdma_tx_ack_timeout_total"][host, device, cells] += world.draw((0.3, 20))
    return _link(world, host, device, begin)


def port_down(world: World) -> Truth:
    """A port goes down, and the job stops within a step."""
    decoys.usual(world)
    at = _stop(world)
    host, device = int(world.rng.integers(world.hosts)), int(world.rng.integers(world.devices))
    world.port_state[host, device, world.after(at - world.draw((0, 10)))] = 0.0
    return _link(world, host, device, at)


def straggler(world: World) -> Truth:
    """One host goes on working, all others wait."""
    decoys.usual(world)
    at = _stop(world)
    host = int(world.rng.integers(world.hosts))
    world.state[:, :, world.after(at)] = WAIT
    world.state[host, :, world.after(at)] = 5
    world.state[world.state == 5] = WORK
    world.notes["keeps working"] = True
    return Truth("hang", "straggler", frozenset({world.names[host]}), onset=world.begin + at)


def absent(world: World) -> Truth:
    """One GPU's rank never enters the collective: it rests, the others poll."""
    decoys.usual(world)
    at = _stop(world)
    host, gpu = world.any_gpu()
    world.state[host, gpu, world.after(at)] = REST
    name = world.names[host]
    return Truth("hang", "rank absent", frozenset({name}), frozenset({(name, str(gpu))}),
                 onset=world.begin + at)  # fmt: skip


def node_death(world: World) -> Truth:
    """A node dies; its series end; the others poll."""
    decoys.usual(world)
    at = _stop(world)
    host = int(world.rng.integers(world.hosts))
    world.alive[host, world.after(at - world.draw((0, 15)))] = False
    return Truth("hang", "node lost", frozenset({world.names[host]}), onset=world.begin + at)


def node_dark(world: World) -> Truth:
    """A node's GPUs show 0 W and 0 % while its exporter goes on."""
    decoys.usual(world)
    at = _stop(world)
    host = int(world.rng.integers(world.hosts))
    world.state[host, :, world.after(at)] = GONE
    return Truth("hang", "node lost", frozenset({world.names[host]}), onset=world.begin + at)


def bridge_gap(world: World) -> Truth:
    """Not a hang: the step series stops, the GPUs go on at full power."""
    at = world.draw((0.5, 0.7)) * world.t[-1]
    world.notes["tb gap"] = (at, 1e9)
    return Truth("", "step series gap")


SCENARIOS = [
    Scenario("hang-busy-wait", busy_wait),
    Scenario("hang-partial", partial),
    Scenario("hang-network-trigger", network_trigger),
    Scenario("hang-port-down", port_down),
    Scenario("hang-straggler", straggler),
    Scenario("hang-rank-absent", absent),
    Scenario("hang-node-death", node_death),
    Scenario("hang-node-dark", node_dark),
    Scenario("no-hang-bridge-gap", bridge_gap),
]

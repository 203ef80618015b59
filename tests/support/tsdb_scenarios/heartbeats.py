"""Jobs that a heartbeat timeout ended."""

from __future__ import annotations

from tests.support.tsdb_scenarios import decoys
from tests.support.tsdb_scenarios.truth import Scenario, Truth
from tests.support.tsdb_scenarios.world import REST, World


def _crash(world: World) -> tuple[float, float, int]:
    """Crash time, timeout, accused host. The job trains until the crash, then all rests."""
    crash = world.draw((0.6, 0.8)) * world.t[-1]
    timeout = float(world.rng.choice([100.0, 180.0, 300.0]))
    host = int(world.rng.integers(world.hosts))
    world.halt = crash
    world.state[:, :, world.after(crash)] = REST
    return crash, timeout, host


def _truth(world: World, cause: str, crash: float, timeout: float, host: int,
           guilty: bool = False) -> Truth:  # fmt: skip
    name = world.names[host]
    options = (("crash_at", float(world.begin + crash)), ("heartbeat_timeout", timeout),
               ("accused", (name,)))  # fmt: skip
    hosts = frozenset({name}) if guilty else frozenset()
    return Truth("heartbeat", cause, hosts, onset=world.begin + crash - timeout, options=options)


def clean(world: World) -> Truth:
    """The accused host trains happily."""
    world.checkpoints = False
    crash, timeout, host = _crash(world)
    return _truth(world, "clean heartbeat", crash, timeout, host)


def clean_among_decoys(world: World) -> Truth:
    """The same, while another host has TCP retransmits all along."""
    world.checkpoints = False
    crash, timeout, host = _crash(world)
    decoys.tcp_storm(world, (host + 1) % world.hosts, 0.2 * world.t[-1], 1e9)
    decoys.noisy_gpu(world, host, 0)
    return _truth(world, "clean heartbeat", crash, timeout, host)


def network(world: World) -> Truth:
    """TCP retransmits on the accused host just when its heartbeats stop."""
    world.checkpoints = False
    crash, timeout, host = _crash(world)
    stopped = crash - timeout
    cells = world.after(stopped - 45, stopped + 45)
    world.rates["hw_tcp_retransmits_total"][host, cells] += world.draw((300, 4000))
    return _truth(world, "network heartbeat", crash, timeout, host)


def storage(world: World) -> Truth:
    """Writeback presses on the accused host when its heartbeats stop."""
    world.checkpoints = False
    crash, timeout, host = _crash(world)
    stopped = crash - timeout
    cells = world.after(stopped - 60, stopped + 60)
    count = int(cells.sum())
    world.gauges["hw_io_pressure_full_pct"][host, cells] += world.rng.uniform(35, 80, count)
    world.gauges["hw_mem_dirty_bytes"][host, cells] += 2e10
    return _truth(world, "storage heartbeat", crash, timeout, host)


def died(world: World) -> Truth:
    """The accused host's GPUs rest from a minute before its heartbeats stop."""
    world.checkpoints = False
    crash, timeout, host = _crash(world)
    dead = crash - timeout - world.draw((30, 90))
    world.state[host, :, world.after(dead)] = REST
    world.state[:, :, world.after(crash)] = REST
    world.halt = dead
    world.notes["rest at"] = crash
    return _truth(world, "true heartbeat", crash, timeout, host, guilty=True)


def vanished(world: World) -> Truth:
    """The accused host is gone before its heartbeats stop."""
    world.checkpoints = False
    crash, timeout, host = _crash(world)
    dead = crash - timeout - world.draw((5, 40))
    world.alive[host, world.after(dead)] = False
    world.halt = dead
    return _truth(world, "true heartbeat", crash, timeout, host, guilty=True)


SCENARIOS = [
    Scenario("heartbeat-clean", clean),
    Scenario("heartbeat-clean-among-decoys", clean_among_decoys),
    Scenario("heartbeat-network", network),
    Scenario("heartbeat-storage", storage),
    Scenario("heartbeat-died", died),
    Scenario("heartbeat-vanished", vanished),
]

"""Checkpoints that fail on the file system."""

from __future__ import annotations

from tests.support.tsdb_scenarios.truth import Scenario, Truth
from tests.support.tsdb_scenarios.world import REST, SAVE, World


def _failed(world: World) -> tuple[float, float, int]:
    """Start, end and step of the fourth save, in which the job dies."""
    world.period, world.step_seconds = 25, min(world.step_seconds, 8.0)
    world.draw_steps()
    start, end, step = world.saves[min(3, len(world.saves) - 1)]
    world.halt = end
    world.ends = world.ends.copy()
    world.notes["dies at"] = end
    world.state[:, :, world.after(start, end)] = SAVE
    world.state[:, :, world.after(end)] = REST
    return start, end, step


def _truth(world: World, start: float, step: int, hosts: frozenset[str], cause: str,
           said: bool) -> Truth:  # fmt: skip
    options = (("failed_checkpoint", float(step)),) if said else ()
    return Truth("checkpoint-fs-error", cause, hosts, onset=world.begin + start, options=options)


def _worse(world: World, start: float, end: float, factor: float) -> frozenset[str]:
    cells = world.after(start, end)
    for host in world.writers:
        world.rates["hw_tcp_retransmits_total"][host, cells] += factor * 4000.0
        world.gauges["hw_procs_blocked"][host, cells] += 25.0 * factor
    return frozenset(world.names[host] for host in world.writers)


def congested(world: World) -> Truth:
    """Retransmits and blocked processes far above the earlier saves, on all writers."""
    start, end, step = _failed(world)
    hosts = _worse(world, start, end, world.draw((1.5, 3.0)))
    return _truth(world, start, step, hosts, "congested checkpoint", said=True)


def congested_unsaid(world: World) -> Truth:
    """The same, and no log tells of it."""
    start, end, step = _failed(world)
    hosts = _worse(world, start, end, world.draw((1.5, 3.0)))
    return _truth(world, start, step, hosts, "congested checkpoint", said=False)


def one_writer(world: World) -> Truth:
    """Only one writer's path to storage is congested."""
    start, end, step = _failed(world)
    host = int(world.rng.choice(world.writers))
    cells = world.after(start, end)
    world.rates["hw_tcp_retransmits_total"][host, cells] += world.draw((5000, 9000))
    return _truth(world, start, step, frozenset({world.names[host]}), "congested checkpoint",
                  said=True)  # fmt: skip


def dirty(world: World) -> Truth:
    """Dirty pages pile up as storage does not take them."""
    start, end, step = _failed(world)
    cells = world.after(start, end)
    for host in world.writers:
        world.gauges["hw_mem_dirty_bytes"][host, cells] += world.draw((3e10, 8e10))
    hosts = frozenset(world.names[host] for host in world.writers)
    return _truth(world, start, step, hosts, "congested checkpoint", said=True)


def as_before(world: World) -> Truth:
    """Storage was as always: the error has another reason."""
    start, _, step = _failed(world)
    return _truth(world, start, step, frozenset(), "not congestion", said=True)


def as_before_with_a_storm(world: World) -> Truth:
    """A storm of retransmits on a host that does not write, outside the save."""
    start, _, step = _failed(world)
    cells = world.after(start - 600, start - 120)
    world.rates["hw_tcp_retransmits_total"][world.hosts - 1, cells] += 5000.0
    return _truth(world, start, step, frozenset(), "not congestion", said=True)


SCENARIOS = [
    Scenario("checkpoint-congested", congested, minutes=90),
    Scenario("checkpoint-congested-unsaid", congested_unsaid, minutes=90),
    Scenario("checkpoint-one-writer", one_writer, minutes=90),
    Scenario("checkpoint-dirty", dirty, minutes=90),
    Scenario("checkpoint-as-before", as_before, minutes=90),
    Scenario("checkpoint-as-before-with-a-storm", as_before_with_a_storm, minutes=90),
]

"""Hosts that run out of memory."""

from __future__ import annotations

import numpy as np

from tests.support.tsdb_scenarios import decoys
from tests.support.tsdb_scenarios.truth import Scenario, Truth
from tests.support.tsdb_scenarios.world import REST, World


def _kill(world: World, hosts: list[int], at: float, cause: str) -> Truth:
    cell = int(at / world.interval)
    for host in hosts:
        world.rates["hw_oom_kills_total"][host, cell] += (
            1.0 / world.interval * (1 + int(world.rng.integers(0, 3)))
        )
        world.memory_extra[host, cell + 1 :] = -0.2
        world.state[host, :, cell + 1 :] = REST
    world.halt = at
    names = frozenset(world.names[host] for host in hosts)
    return Truth("oom", cause, names, onset=world.begin + at)


def leak(world: World) -> Truth:
    """Memory grows on one host from the first step until the kernel kills."""
    decoys.usual(world)
    host = int(world.rng.integers(world.hosts))
    at = world.draw((0.7, 0.85)) * world.t[-1]
    ramp = np.clip((world.t - world.startup) / (at - world.startup), 0, 1)
    world.memory_extra[host] += 0.75 * ramp
    return _kill(world, [host], at, "leak")


def leak_everywhere(world: World) -> Truth:
    """The same leak on all hosts; all are killed together."""
    decoys.usual(world)
    at = world.draw((0.7, 0.85)) * world.t[-1]
    ramp = np.clip((world.t - world.startup) / (at - world.startup), 0, 1)
    world.memory_extra += 0.75 * ramp
    return _kill(world, list(range(world.hosts)), at, "leak")


def spike(world: World) -> Truth:
    """A load of data fills one host within a minute."""
    decoys.usual(world)
    host = int(world.rng.integers(world.hosts))
    at = world.draw((0.55, 0.8)) * world.t[-1]
    rise = np.clip((world.t - (at - 60.0)) / 60.0, 0, 1)
    world.memory_extra[host] += 0.75 * rise
    world.checkpoints = False
    return _kill(world, [host], at, "spike")


def spike_everywhere(world: World) -> Truth:
    """A recompilation or a data burst fills all hosts at once."""
    decoys.usual(world)
    at = world.draw((0.55, 0.8)) * world.t[-1]
    rise = np.clip((world.t - (at - 45.0)) / 45.0, 0, 1)
    world.memory_extra += 0.75 * rise
    world.checkpoints = False
    return _kill(world, list(range(world.hosts)), at, "spike")


def _save_oom(world: World, growing: bool) -> Truth:
    decoys.usual(world)
    world.period, world.step_seconds = 25, min(world.step_seconds, 9.0)
    world.notes["save memory"] = 0.35
    # Steps and saves are drawn first; the fourth save is the one too many.
    world.draw_steps()
    rounds = [start for start, _, _ in world.saves]
    last = rounds[min(3, len(rounds) - 1)]
    writers = list(world.writers)
    at = last + 0.5 * world.save_seconds
    world.memory_extra[writers] += np.where(world.after(last, at + world.interval), 0.4, 0.0)
    if growing:
        ramp = np.clip((world.t - world.startup) / (at - world.startup), 0, 1)
        world.memory_extra[writers] += 0.06 * ramp
    return _kill(world, writers, at, "checkpoint")


def checkpoint(world: World) -> Truth:
    """Each save copies the model to host memory; one peak is too high."""
    return _save_oom(world, growing=False)


def checkpoint_growing(world: World) -> Truth:
    """Saves whose peaks sit on a slowly growing level."""
    return _save_oom(world, growing=True)


SCENARIOS = [
    Scenario("oom-leak", leak, minutes=120),
    Scenario("oom-leak-everywhere", leak_everywhere, minutes=120),
    Scenario("oom-spike", spike),
    Scenario("oom-spike-everywhere", spike_everywhere),
    Scenario("oom-checkpoint", checkpoint, minutes=100, hosts=6),
    Scenario("oom-checkpoint-growing", checkpoint_growing, minutes=100, hosts=6),
]

"""Training that loses its way, and steps that grow slow for reasons on the hosts."""

from __future__ import annotations

import numpy as np

from tests.support.tsdb_scenarios import decoys
from tests.support.tsdb_scenarios.truth import Scenario, Truth
from tests.support.tsdb_scenarios.world import World


def _after_step(world: World, share: float) -> np.ndarray:
    return world.ends >= share * world.t[-1]


def _truth(world: World, cause: str, hosts: frozenset[str], at: float) -> Truth:
    return Truth("training-stability", cause, hosts, onset=world.begin + at)


def nan_loss(world: World) -> Truth:
    """Gradients jump, then the loss is NaN for good."""
    decoys.usual(world)
    share = world.draw((0.5, 0.7))

    def change(played: World) -> None:
        late = _after_step(played, share)
        first = int(np.flatnonzero(late)[0])
        played.scalars["tb_learning_raw_grad_norm"][first - 2 : first] *= 60.0
        for name in ("tb_learning_loss", "tb_learning_raw_grad_norm", "tb_learning_grad_norm"):
            played.scalars[name][late] = np.nan

    world.transforms.append(change)
    return _truth(world, "loss", frozenset(), share * world.t[-1])


def divergence(world: World) -> Truth:
    """The learning rate jumps, gradients and loss follow."""
    decoys.usual(world)
    share = world.draw((0.45, 0.6))

    def change(played: World) -> None:
        late = _after_step(played, share)
        count = np.cumsum(late)
        played.scalars["tb_learning_current_learning_rate"][late] *= 8.0
        lag = np.maximum(count - 3, 0)
        played.scalars["tb_learning_raw_grad_norm"] *= 1.0 + np.minimum(lag, 40) * 0.5
        played.scalars["tb_learning_loss"] += np.minimum(lag * 0.04, 4.0)

    world.transforms.append(change)
    return _truth(world, "learning rate", frozenset(), share * world.t[-1])


def divergence_alone(world: World) -> Truth:
    """Gradients grow wild and the loss climbs, at an innocent learning rate."""
    decoys.usual(world)
    share = world.draw((0.45, 0.6))

    def change(played: World) -> None:
        count = np.cumsum(_after_step(played, share))
        played.scalars["tb_learning_raw_grad_norm"] *= 1.0 + np.minimum(count, 40) * 1.5
        played.scalars["tb_learning_loss"] += np.minimum(np.maximum(count - 4, 0) * 0.05, 4.0)

    world.transforms.append(change)
    return _truth(world, "loss", frozenset(), share * world.t[-1])


def routing(world: World) -> Truth:
    """Expert routing shifts: the balance loss jumps, GPUs grow uneven, steps slower."""
    decoys.usual(world)
    at = world.draw((0.45, 0.6)) * world.t[-1]
    factor = world.draw((1.12, 1.35))
    world.slowdown[world.after(at + 10)] *= factor
    lucky = world.rng.random((world.hosts, world.gpus)) < 0.5
    world.util_extra += np.where(lucky[..., None] & world.after(at), -25.0, 0.0)
    world.power_factor *= np.where(lucky[..., None] & world.after(at), 0.9, 1.0)

    def change(played: World) -> None:
        base = 0.01 + np.abs(played.rng.normal(0, 0.0004, played.ends.size))
        late = played.ends >= at
        played.scalars["tb_learning_moe_lb_loss"] = np.where(late, base * 3.0, base)

    world.transforms.append(change)
    return _truth(world, "routing", frozenset(), at)


def cpu_contention(world: World) -> Truth:
    """Foreign processes on one host slow every step."""
    decoys.usual(world)
    at = world.draw((0.4, 0.6)) * world.t[-1]
    host = int(world.rng.integers(world.hosts))
    cells = world.after(at)
    world.gauges["hw_procs_running"][host, cells] += world.draw((60, 200))
    world.rates["hw_context_switches_total"][host, cells] *= 3.0
    world.slowdown[cells] *= world.draw((1.13, 1.5))
    return _truth(world, "cpu", frozenset({world.names[host]}), at)


def input_storage(world: World) -> Truth:
    """Storage under one or two hosts grows slow: their input, and so every step."""
    decoys.usual(world)
    at = world.draw((0.4, 0.6)) * world.t[-1]
    count = 2 if world.hosts >= 4 else 1
    hosts = sorted({int(h) for h in world.rng.integers(0, world.hosts, count)})
    cells = world.after(at)
    count = int(cells.sum())
    for host in hosts:
        world.gauges["hw_io_pressure_full_pct"][host, cells] += world.rng.uniform(25, 60, count)
        world.gauges["hw_io_pressure_some_pct"][host, cells] += world.rng.uniform(35, 75, count)
        world.gauges["hw_procs_blocked"][host, cells] += world.rng.integers(8, 25, count)
    world.slowdown[cells] *= world.draw((1.2, 1.7))
    return _truth(world, "storage", frozenset(world.names[h] for h in hosts), at)


def unexplained(world: World) -> Truth:
    """Steps grow slower, and nothing that is recorded moved."""
    decoys.usual(world)
    at = world.draw((0.4, 0.6)) * world.t[-1]
    world.slowdown[world.after(at)] *= world.draw((1.15, 1.4))
    return _truth(world, "unknown", frozenset(), at)


SCENARIOS = [
    Scenario("training-nan-loss", nan_loss),
    Scenario("training-lr-divergence", divergence),
    Scenario("training-divergence", divergence_alone),
    Scenario("training-routing", routing, minutes=75),
    Scenario("training-cpu", cpu_contention, minutes=75),
    Scenario("training-storage", input_storage, minutes=75),
    Scenario("training-unexplained", unexplained, minutes=75),
]

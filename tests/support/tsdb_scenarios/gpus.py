"""GPUs that are not well but go on."""

from __future__ import annotations

import numpy as np

from tests.support.tsdb_scenarios import decoys
from tests.support.tsdb_scenarios.truth import Scenario, Truth
from tests.support.tsdb_scenarios.world import World


def _truth(world: World, cause: str, gpus: list[tuple[int, int]], at: float) -> Truth:
    names = frozenset((world.names[host], str(gpu)) for host, gpu in gpus)
    hosts = frozenset(host for host, _ in names)
    return Truth("gpu-health", cause, hosts, names, onset=world.begin + at)


def _heat(world: World, host: int, gpus: list[int], start: float, end: float) -> float:
    """Temperature climbs over two minutes, the clock follows after a lag, then power."""
    rise, lag = world.draw((14, 26)), world.draw((30, 90))
    climb = np.clip((world.t - start) / 120.0, 0, 1) * (world.t < end)
    drop = world.draw((0.12, 0.3))
    slow = np.clip((world.t - start - lag) / 120.0, 0, 1) * (world.t < end)
    for gpu in gpus:
        world.temp_extra[host, gpu] += rise * climb
        world.clock_factor[host, gpu] *= 1.0 - drop * slow
        world.power_factor[host, gpu] *= 1.0 - 0.9 * drop * slow
    world.slowdown *= 1.0 + drop * slow
    return start


def throttle(world: World) -> Truth:
    """One GPU overheats and throttles to the end."""
    decoys.usual(world)
    host, gpu = world.any_gpu()
    at = _heat(world, host, [gpu], world.draw((0.4, 0.55)) * world.t[-1], np.inf)
    return _truth(world, "thermal", [(host, gpu)], at)


def throttle_and_back(world: World) -> Truth:
    """One GPU overheats for a while."""
    decoys.usual(world)
    host, gpu = world.any_gpu()
    start = 0.4 * world.t[-1]
    at = _heat(world, host, [gpu], start, start + 0.25 * world.t[-1])
    return _truth(world, "thermal", [(host, gpu)], at)


def cooling(world: World) -> Truth:
    """A host's cooling fails: all its GPUs."""
    decoys.usual(world)
    host, _ = world.any_gpu()
    gpus = list(range(world.gpus))
    at = _heat(world, host, gpus, world.draw((0.4, 0.55)) * world.t[-1], np.inf)
    return _truth(world, "thermal", [(host, gpu) for gpu in gpus], at)


def clock(world: World) -> Truth:
    """A core clock drops at once, without heat: power brake, firmware."""
    decoys.usual(world)
    host, gpu = world.any_gpu()
    start = world.draw((0.4, 0.55)) * world.t[-1]
    drop = world.draw((0.15, 0.4))
    cells = world.after(start)
    world.clock_factor[host, gpu, cells] *= 1.0 - drop
    world.power_factor[host, gpu, cells] *= 1.0 - 0.8 * drop
    world.slowdown[cells] *= 1.0 + drop
    return _truth(world, "clock", [(host, gpu)], start)


def weak(world: World) -> Truth:
    """A card that draws a third less than the others throughout."""
    decoys.usual(world)
    host, gpu = world.any_gpu()
    world.power_factor[host, gpu] *= world.draw((0.55, 0.72))
    return _truth(world, "power outlier", [(host, gpu)], 0.0)


def correctable(world: World) -> Truth:
    """Corrected memory errors pile up on one card."""
    decoys.usual(world)
    host, gpu = world.any_gpu()
    start = 0.3 * world.t[-1]
    name = next(n for n in world.errors if n.endswith(("umc_ce_total", "ecc_corrected_total")))
    cells = np.flatnonzero(world.after(start))
    world.errors[name][host, gpu, cells] += world.rng.poisson(0.8, cells.size)
    return _truth(world, "correctable", [(host, gpu)], start)


def hot_without_effect(world: World) -> Truth:
    """A card above 90 °C that does not throttle yet."""
    decoys.usual(world)
    host, gpu = world.any_gpu()
    start = 0.4 * world.t[-1]
    world.temp_extra[host, gpu] += np.where(world.after(start), world.draw((26, 34)), 0.0)
    return _truth(world, "hot", [(host, gpu)], start)


SCENARIOS = [
    Scenario("gpu-throttle", throttle, minutes=75),
    Scenario("gpu-throttle-and-back", throttle_and_back, minutes=90),
    Scenario("gpu-cooling", cooling, minutes=75),
    Scenario("gpu-clock", clock, minutes=75),
    Scenario("gpu-weak", weak),
    Scenario("gpu-correctable", correctable),
    Scenario("gpu-hot-without-effect", hot_without_effect),
]

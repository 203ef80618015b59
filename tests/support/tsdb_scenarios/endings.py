"""What ended a job, beside what it had got over before."""

from __future__ import annotations

import numpy as np

from tests.support.tsdb_scenarios import decoys
from tests.support.tsdb_scenarios.network import bad_link
from tests.support.tsdb_scenarios.truth import Scenario, Truth
from tests.support.tsdb_scenarios.world import World


def _end(world: World, at: float, least: float, most: float) -> None:
    """The job stops, and soon after it everything that is scraped."""
    world.halt = at
    world.alive[:, world.after(at + world.draw((least, most)))] = False


def _truth(world: World, cause: str, host: int, gpu: int, at: float) -> Truth:
    name = world.names[host]
    gpus = frozenset({(name, str(gpu))})
    return Truth("hardware", cause, frozenset({name}), gpus, onset=world.begin + at)


def after_a_bad_link(world: World) -> Truth:
    """A link was bad for a while and recovered; later a memory error kills the job in seconds."""
    decoys.usual(world)
    end = float(world.t[-1])
    link = int(world.rng.integers(world.hosts)), int(world.rng.integers(world.devices))
    bad_link(world, *link, 0.3 * end, 0.5 * end, world.draw((1.12, 1.45)))
    host, gpu = world.any_gpu()
    at = world.draw((0.7, 0.85)) * end
    name = next(n for n in world.errors if n.endswith(("umc_ue_total", "ecc_uncorrected_total")))
    world.errors[name][host, gpu, int(at / world.interval)] += 1.0
    _end(world, at + world.draw((2, 15)), 40, 110)
    return _truth(world, "uncorrectable", host, gpu, at)


def short_tail(world: World) -> Truth:
    """A fatal PCIe error, and less than two minutes of data after the last step."""
    decoys.usual(world)
    host, gpu = world.any_gpu()
    at = world.draw((0.6, 0.85)) * world.t[-1]
    world.errors["hw_gpu_pcie_fatal_total"][host, gpu, int(at / world.interval)] += 1.0
    _end(world, at + world.draw((2, 15)), 30, 110)
    return _truth(world, "pcie fatal", host, gpu, at)


def hot_before(world: World) -> Truth:
    """A card climbs to over 100 °C within minutes and falls off the bus."""
    decoys.usual(world)
    host, gpu = world.any_gpu()
    at = world.draw((0.6, 0.8)) * world.t[-1]
    world.temp_extra[host, gpu] += 55.0 * np.clip((world.t - at + 300.0) / 240.0, 0.0, 1.0)
    world.gpu_alive[host, gpu, world.after(at)] = False
    world.halt = at + world.draw((0, 10))
    return _truth(world, "gpu lost", host, gpu, at)


SCENARIOS = [
    Scenario("ending-after-a-bad-link", after_a_bad_link, minutes=90),
    Scenario("ending-short-tail", short_tail),
    Scenario("ending-hot-before", hot_before),
]

"""What all hosts share, and no host is to blame for: the facility's cooling, a store."""

from __future__ import annotations

import numpy as np

from tests.support.tsdb_scenarios import decoys
from tests.support.tsdb_scenarios.truth import Scenario, Truth
from tests.support.tsdb_scenarios.world import World


def _heat(world: World, start: float, climb: float) -> None:
    """All cards come to 104 to 113 °C, and a third of their clock goes."""
    shape = world.temp_extra.shape
    share = np.clip((world.t - start) / climb, 0, 1)
    slow = np.clip((world.t - start - 0.5 * climb) / climb, 0, 1)
    world.notes["temperature"] = (share, 106.0 + world.rng.uniform(-2, 5, (*shape[:2], 1)))
    drop = world.draw((0.28, 0.36))
    world.clock_factor *= 1.0 - drop * slow
    world.power_factor *= 1.0 - 0.7 * drop * slow
    world.slowdown *= 1.0 + 0.9 * drop * slow


def hot_room(world: World) -> Truth:
    """The cooling of the room fails in the middle of the job."""
    decoys.usual(world)
    start = world.draw((0.4, 0.55)) * world.t[-1]
    _heat(world, start, world.draw((240, 600)))
    return Truth("gpu-health", "facility heat", onset=world.begin + start)


def hot_throughout(world: World) -> Truth:
    """The room was hot before the job began: nothing in it is faster than the rest."""
    decoys.usual(world)
    _heat(world, 0.0, 60.0)
    return Truth("gpu-health", "facility heat")


def shared_store(world: World) -> Truth:
    """The store that all hosts read from is slow: all wait for it, some a little more."""
    decoys.usual(world)
    start = world.draw((0.4, 0.55)) * world.t[-1]
    cells = world.after(start)
    for host in range(world.hosts):
        level = world.draw((14, 40))
        noise = np.abs(world.rng.normal(level, 0.35 * level, int(cells.sum())))
        world.gauges["hw_io_pressure_full_pct"][host, cells] += noise
        world.gauges["hw_io_pressure_some_pct"][host, cells] += 1.3 * noise
        world.gauges["hw_procs_blocked"][host, cells] += world.rng.poisson(level / 5, cells.sum())
    world.slowdown[cells] *= world.draw((1.2, 1.6))
    return Truth("training-stability", "storage", onset=world.begin + start)


SCENARIOS = [
    Scenario("facility-hot-room", hot_room, minutes=90),
    Scenario("facility-hot-throughout", hot_throughout, minutes=60),
    Scenario("facility-shared-store", shared_store, minutes=80),
]

"""Hardware that fails."""

from __future__ import annotations

import numpy as np

from tests.support.tsdb_scenarios import decoys
from tests.support.tsdb_scenarios.truth import Scenario, Truth
from tests.support.tsdb_scenarios.world import GONE, World


def _truth(world: World, cause: str, host: int, gpu: int | None, at: float) -> Truth:
    name = world.names[host]
    gpus = frozenset({(name, str(gpu))}) if gpu is not None else frozenset()
    return Truth("hardware", cause, frozenset({name}), gpus, onset=world.begin + at)


def _error(world: World, *ends: str) -> str:
    return next(name for name in world.errors if name.endswith(ends))


def uncorrectable(world: World) -> Truth:
    """Memory errors that cannot be corrected; the job stops with them."""
    decoys.usual(world)
    host, gpu = world.any_gpu()
    at = world.draw((0.5, 0.75)) * world.t[-1]
    name = _error(world, "umc_ue_total", "ecc_uncorrected_total")
    world.errors[name][host, gpu, int(at / world.interval)] += float(world.rng.integers(1, 9))
    world.halt = at + world.draw((0, 20))
    return _truth(world, "uncorrectable", host, gpu, at)


def after_correctable(world: World) -> Truth:
    """Correctable errors pile up for a while, then an uncorrectable one stops the job."""
    decoys.usual(world)
    host, gpu = world.any_gpu()
    at = world.draw((0.6, 0.75)) * world.t[-1]
    soft = _error(world, "umc_ce_total", "ecc_corrected_total")
    cells = np.flatnonzero(world.after(0.3 * world.t[-1], at))
    world.errors[soft][host, gpu, cells] += world.rng.poisson(0.5, cells.size)
    hard = _error(world, "umc_ue_total", "ecc_uncorrected_total")
    world.errors[hard][host, gpu, int(at / world.interval)] += 1.0
    world.halt = at + world.draw((0, 20))
    return _truth(world, "uncorrectable", host, gpu, at)


def pcie(world: World) -> Truth:
    """A fatal PCIe error; the GPU goes dark."""
    decoys.usual(world)
    host, gpu = world.any_gpu()
    at = world.draw((0.5, 0.75)) * world.t[-1]
    world.errors["hw_gpu_pcie_fatal_total"][host, gpu, int(at / world.interval)] += 1.0
    world.state[host, gpu, world.after(at)] = GONE
    world.halt = at + world.draw((0, 20))
    return _truth(world, "pcie fatal", host, gpu, at)


def off_the_bus(world: World) -> Truth:
    """One GPU's series end; the job stops."""
    decoys.usual(world)
    host, gpu = world.any_gpu()
    at = world.draw((0.5, 0.75)) * world.t[-1]
    world.gpu_alive[host, gpu, world.after(at)] = False
    world.halt = at + world.draw((0, 10))
    return _truth(world, "gpu lost", host, gpu, at)


def xid(world: World) -> Truth:
    """An Xid 79 whose series comes into being with it; the job stops."""
    decoys.usual(world)
    host, gpu = world.any_gpu()
    at = world.draw((0.5, 0.75)) * world.t[-1]
    cells = world.after(at)
    labels = {"host": world.names[host], "gpu": str(gpu), "xid": "79"}
    world.extra.append(("hw_gpu_xid_errors_total", labels, world.times[cells],
                        np.ones(int(cells.sum()))))  # fmt: skip
    world.halt = at + world.draw((0, 20))
    return _truth(world, "xid", host, gpu, at)


def node_with_errors(world: World) -> Truth:
    """The kernel log counts GPU errors, then the node is gone."""
    decoys.usual(world)
    host, _ = world.any_gpu()
    at = world.draw((0.5, 0.75)) * world.t[-1]
    early = at - world.draw((20, 90))
    world.rates["hw_dmesg_gpu_errors_total"][host, world.after(early, at)] += 0.3
    world.alive[host, world.after(at)] = False
    world.halt = at
    return _truth(world, "driver fault", host, None, early)


def driver_hang(world: World) -> Truth:
    """A kernel bug in error reporting: slow cycles, holes in GPU series; training goes on."""
    decoys.usual(world)
    host, _ = world.any_gpu()
    at = world.draw((0.2, 0.4)) * world.t[-1]
    cells = np.flatnonzero(world.after(at))
    slow = cells[world.rng.random(cells.size) < world.draw((0.25, 0.5))]
    world.gauges["hw_scrape_duration_seconds"][host, slow] = 12.0 + world.rng.normal(
        0, 0.1, slow.size
    )
    world.gpu_alive[host][:, slow] = False
    world.rates["hw_dmesg_gpu_errors_total"][host, cells[:: int(600 / world.interval)]] += 0.4
    return _truth(world, "driver fault", host, None, at)


SCENARIOS = [
    Scenario("hardware-uncorrectable", uncorrectable),
    Scenario("hardware-after-correctable", after_correctable),
    Scenario("hardware-pcie-fatal", pcie),
    Scenario("hardware-off-the-bus", off_the_bus),
    Scenario("hardware-xid", xid),
    Scenario("hardware-node-with-errors", node_with_errors),
    Scenario("hardware-driver-hang", driver_hang, minutes=90),
]

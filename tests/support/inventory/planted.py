"""What is planted in a generated job, for the playbooks to find."""

from __future__ import annotations

import numpy as np

from tests.support.inventory.series import (
    BEGIN,
    Plant,
)
from tests.support.tsdb_scenarios.world import World

HANG, HEART, OOM = "collective-hang", "heartbeat-false-positive", "host-oom"
NODE, GPU, NET, TRAIN = (
    "node-hardware-failure", "gpu-health", "network-health", "training-stability",
)  # fmt: skip


def warmer(degrees: float) -> Plant:
    """One GPU is so much warmer than the 75 degrees of all others."""

    def plant(world: World) -> None:
        world.temp_extra[1, 0] += np.where(world.after(BEGIN), degrees, 0.0)

    return plant


def weaker(factor: float) -> Plant:
    """One GPU draws less than the 850 W of all others."""

    def plant(world: World) -> None:
        world.power_factor[1, 0] *= factor

    return plant


def clocked(factor: float) -> Plant:
    """One GPU's core clock drops at once."""

    def plant(world: World) -> None:
        world.clock_factor[1, 0, world.after(BEGIN)] *= factor

    return plant


def errors(name: str, each: float) -> Plant:
    """One GPU counts so many errors at each look; old ones from before the job count nothing."""

    def plant(world: World) -> None:
        shape = (world.hosts, world.gpus, world.t.size)
        counts = world.errors.setdefault(name, np.zeros(shape))
        counts[1, 0, 0] += 40.0
        if each:
            counts[1, 0, world.after(BEGIN)] += each

    return plant


def busy(percent: float) -> Plant:
    """All GPUs are so much less used than the 92 % of a job at work."""

    def plant(world: World) -> None:
        world.util_extra -= 92.0 - percent

    return plant


def link(name: str, rate: float, *, everywhere: bool = False) -> Plant:
    """One RDMA port counts so many a second, or all do."""

    def plant(world: World) -> None:
        place = (slice(None), slice(None)) if everywhere else (1, 1)
        world.rdma[name][(*place, world.after(BEGIN))] += rate

    return plant


def down(world: World) -> None:
    """A port goes down, and comes back."""
    world.port_state[1, 1, world.after(BEGIN, BEGIN + 60)] = 0.0


def host(name: str, rate: float) -> Plant:
    """One host counts so many a second."""

    def plant(world: World) -> None:
        world.rates.setdefault(name, np.zeros((world.hosts, world.t.size)))
        world.rates[name][1, world.after(BEGIN)] += rate

    return plant


def card(name: str, rate: float) -> Plant:
    """A network card counts so many errors a second."""

    def plant(world: World) -> None:
        world.rates.pop(name, None)
        for index, node in enumerate(world.names):
            growth = np.where(world.after(BEGIN) & (index == 1), rate * world.interval, 0.0)
            labels = {"host": node, "device": "eth0"}
            world.extra.append((name, labels, world.times, np.floor(np.cumsum(growth))))

    return plant


def both(*plants: Plant) -> Plant:
    """Several things in one job."""

    def plant(world: World) -> None:
        for one in plants:
            one(world)

    return plant


def slower(factor: float) -> Plant:
    """Every step takes longer."""

    def plant(world: World) -> None:
        world.slowdown[world.after(BEGIN)] *= factor

    return plant


RETX, ACK = "hw_rdma_tx_retx_pkts_total", "hw_rdma_tx_ack_timeout_total"
CNP, TCP = "hw_rdma_rx_cnp_pkts_total", "hw_tcp_retransmits_total"


def old(world: World) -> None:
    """Ports with ninety million retransmits from before the job, and none in it."""
    world.rdma[RETX][1, :, 0] += 9e7 / world.interval

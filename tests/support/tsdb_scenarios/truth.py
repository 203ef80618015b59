"""What is known about a scenario because it was planted."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

from tests.support.tsdb_scenarios import decoys
from tests.support.tsdb_scenarios.world import World


@dataclass(frozen=True)
class Truth:
    """The planted cause, in the generator's own words."""

    playbook: str
    """Whose scenario it is: "hang", "heartbeat", "oom", "hardware", "gpu-health",
    "network-health", "training-stability", "checkpoint-fs-error"; "" for a healthy job."""
    cause: str
    """Such as "rdma link"; "" where nothing is wrong."""
    hosts: frozenset[str] = frozenset()
    """The culprits."""
    gpus: frozenset[tuple[str, str]] = frozenset()
    """(host, gpu) where single GPUs are to blame."""
    devices: frozenset[tuple[str, str]] = frozenset()
    onset: float | None = None
    """Unix seconds."""
    options: tuple[tuple[str, object], ...] = ()
    """What a user would say on the command line, such as the accused hosts."""


@dataclass(frozen=True)
class Scenario:
    """One kind of job. ``build`` makes it from a world that has not been played yet."""

    name: str
    build: Callable[[World], Truth]
    minutes: float = 60.0
    hosts: int = 4

    def make(self, seed: int, model: str = "MI355X", hosts: int | None = None, gpus: int = 8,
             style: str = "ray", restless: bool = False) -> tuple[World, Truth]:  # fmt: skip
        """The job, played, and the truth about it."""
        salted = seed + zlib.crc32(self.name.encode())
        world = World(seed=salted, hosts=hosts or self.hosts, gpus=gpus, minutes=self.minutes,
                      model=model, style=style)  # fmt: skip
        if restless:
            decoys.restless(world)
        truth = self.build(world)
        world.play()
        return world, truth

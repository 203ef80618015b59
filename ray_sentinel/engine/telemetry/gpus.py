"""The GPUs of a job, and what each draws at work and at rest: learned, or what its model draws.

Utilisation says only that a kernel is running; one that polls for its peers shows 100 %. Power
tells work from polling: a GPU that waits draws little more than one at rest. Levels are learned for
each GPU, since cards of one model differ and so do their jobs; until a GPU was seen at work, its
model's levels are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import msgspec

from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.telemetry.series import NodeTelemetry
from ray_sentinel.model.thresholds import GPU_AT_WORK, GPU_IDLE

POWER = "hw_gpu_power_watts"
UTILISATION = "hw_gpu_utilization_ratio"
WINDOW = 20.0
"""Seconds whose median is a GPU's current level."""
LEARN = 0.1
"""Share of one look in what is learned."""
BUSY = 0.9
"""Utilisation (0 to 1) from which a GPU works, or polls for its peers. Higher than GPU_AT_WORK: a
loop that polls leaves no pause in ``WINDOW``, while work leaves some."""
IDLE = GPU_IDLE.limit
"""Utilisation (0 to 1) up to which a GPU does nothing."""
WAIT_SHARE = 0.4
"""Up to this share of the way from the power at rest to that at work, a GPU's power is that of
waiting."""

MODELS: tuple[tuple[str, float, float], ...] = (
    # name, watts at rest, watts at work in training (reports of their users; cards differ)
    ("MI355", 250.0, 900.0),
    ("MI350", 240.0, 800.0),
    ("MI325", 150.0, 750.0),
    ("MI300", 140.0, 630.0),
    ("GB200", 180.0, 950.0),
    ("B200", 160.0, 860.0),
    ("H200", 95.0, 620.0),
    ("H100", 90.0, 600.0),
    ("H800", 90.0, 600.0),
    ("A100", 60.0, 330.0),
    ("A800", 60.0, 330.0),
)

GpuState = Literal["working", "waiting", "resting", "unclear"]


class GpuPlace(NamedTuple):
    """One GPU of a job, and the series of its node."""

    node: str
    gpu: str
    """Its index on the node."""
    telemetry: NodeTelemetry


class GpuLevels(msgspec.Struct):
    """The power levels learned for each GPU, in watts, by node and index. Only the engine changes
    it."""

    work: dict[tuple[str, str], float] = {}
    rest: dict[tuple[str, str], float] = {}

    def learn(self, places: Iterable[GpuPlace], now: float, *, working: bool) -> None:
        """Learn from GPUs of a job: a ``working`` one shows the power at work, idle GPUs the power
        at rest."""
        for node_id, index, node in places:
            key = (node_id, index)
            power = _level(node, POWER, index, now)
            use = _level(node, UTILISATION, index, now)
            if power is None or use is None:
                continue
            if use <= IDLE:
                self.rest[key] = min(power, self.rest.get(key, power))
            elif working and use >= GPU_AT_WORK.limit:
                old = self.work.get(key)
                self.work[key] = power if old is None else old + LEARN * (power - old)

    def forget(self, node_id: str) -> None:
        """Drop a node that left long ago."""
        for levels in (self.work, self.rest):
            for key in [key for key in levels if key[0] == node_id]:
                del levels[key]

    def state(self, place: GpuPlace, now: float) -> tuple[GpuState, float | None]:
        """What a GPU does, and what it draws in watts. Busy-waiting is full utilisation at a power
        near idle."""
        node_id, index, node = place
        rest, work = model_levels(node, index, now)
        rest = self.rest.get((node_id, index), rest)
        work = self.work.get((node_id, index), work)
        power = _level(node, POWER, index, now)
        use = _level(node, UTILISATION, index, now)
        if power is None or use is None or work <= 0:
            return "unclear", power
        low = power <= rest + WAIT_SHARE * max(work - rest, 0.0)
        if use <= IDLE:
            return ("resting" if low else "unclear"), power
        if not low:
            return "working", power
        return ("waiting" if use >= BUSY else "unclear"), power


def gpu_places(job: JobView, node_id: str, node: NodeTelemetry, now: float) -> Iterator[GpuPlace]:
    """The GPUs on one node that were assigned to the job's ranks; where the ranks do not say, all
    of the node's."""
    ranks = job.live_on(node_id)
    if not ranks:
        return
    own = {gpu for rank in ranks for gpu in rank.rank.gpus}
    every = {labels["gpu"] for labels, _ in node.get(POWER, now) if "gpu" in labels}
    every |= {labels["gpu"] for labels, _ in node.get(UTILISATION, now) if "gpu" in labels}
    own |= {
        labels["gpu"]
        for labels, _ in node.get("hw_gpu_info", now)
        if "gpu" in labels and labels.get("uuid") in own
    }
    told = all(rank.rank.gpus for rank in ranks)
    for index in sorted(every & own if told else every):
        yield GpuPlace(node_id, index, node)


def model_levels(node: NodeTelemetry, index: str, now: float) -> tuple[float, float]:
    """Watts at rest and at work of the GPU's model; (0, 0) for an unknown one."""
    for labels, _ in node.get("hw_gpu_info", now):
        if labels.get("gpu") == index:
            for name, rest, work in MODELS:
                if name in labels.get("name", "").upper():
                    return rest, work
    return 0.0, 0.0


def _level(node: NodeTelemetry, name: str, index: str, now: float) -> float | None:
    series = node.one(name, now, gpu=index)
    return series.level(now, WINDOW, least=2) if series is not None else None

"""A small watched job, given phase by phase: what its GPUs draw, and when its steps end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ray_sentinel.store.event_files.memory import MemorySource

BEGIN = 1.7e9
STEP_SECONDS = 10.0


@dataclass(frozen=True)
class Phase:
    """``seconds`` in which GPUs draw ``watts`` with this spread; ``steps``: whether any end."""

    seconds: float
    steps: bool = True
    watts: float = 620.0
    spread: float = 12.0
    util: float = 98.0


def watched(
    phases: Sequence[Phase],
    *,
    seed: int = 0,
    hosts: int = 4,
    until: dict[int, float] | None = None,
    every: dict[int, float] | None = None,
) -> MemorySource:
    """The job's series. ``until`` (seconds after the begin) and ``every`` (seconds between two
    samples) are by host; the first host also tells the steps."""
    rng = np.random.default_rng(seed)
    edges = np.cumsum([phase.seconds for phase in phases])
    source = MemorySource("a plain job")
    ends = np.concatenate([
        np.arange(edge - phase.seconds + STEP_SECONDS, edge + 1e-6, STEP_SECONDS)
        for edge, phase in zip(edges, phases, strict=True) if phase.steps
    ])  # fmt: skip
    source.add("tb_step", {"host": "n0"}, BEGIN + ends, np.arange(ends.size, dtype=float))
    for host in range(hosts):
        last = (until or {}).get(host, float(edges[-1]))
        times = np.arange(0.0, last + 1e-6, (every or {}).get(host, 10.0))
        at = np.minimum(np.searchsorted(edges, times), len(phases) - 1)
        watts, spread, util = (
            np.array([getattr(phase, name) for phase in phases])[at]
            for name in ("watts", "spread", "util")
        )
        for gpu in ("0", "1"):
            labels = {"host": f"n{host}", "gpu": gpu}
            power = rng.normal(watts, spread)
            source.add("hw_gpu_power_watts", labels, BEGIN + times, power)
            used = np.clip(rng.normal(util, 1.0), 0.0, 100.0) / 100.0
            source.add("hw_gpu_utilization_ratio", labels, BEGIN + times, used)
    return source

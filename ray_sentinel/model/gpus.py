"""One quantity of all GPUs, node by node: what a heat map shows, and what ranks are coloured by."""

from __future__ import annotations

from typing import Literal

import msgspec

GpuQuantity = Literal["utilisation", "memory", "power", "temperature", "clock", "memory-clock"]
"""``utilisation`` and ``memory`` are ratios (0..1); ``power`` in watts, ``temperature`` in °C,
``clock`` (of the shaders) and ``memory-clock`` in MHz."""


class GpuRow(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs of one node, one entry each in all three fields."""

    host: str
    gpus: tuple[str, ...]
    """Their indices; for a MIG device ``GPU:DEVICE``."""
    values: tuple[float | None, ...]
    """The current value of each GPU; None where it is not known."""
    ages: tuple[int | None, ...]
    """Seconds since the value came."""


class GpuMap(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs of all nodes that have reported any within the last half hour, by node name."""

    quantity: GpuQuantity
    rows: tuple[GpuRow, ...] = ()


class HostRankGpus(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs of one node's ranks, one entry for each process in all fields but the first; a rank
    of whose GPU nothing is known has none."""

    host: str
    pids: tuple[int, ...]
    values: tuple[float, ...]
    """The current value, the mean where a process has several GPUs."""
    ages: tuple[float, ...]
    """Seconds since the (oldest) value was sampled."""


class RankGpus(msgspec.Struct, frozen=True, kw_only=True):
    """One quantity of the GPUs of all ranks."""

    quantity: GpuQuantity
    hosts: tuple[HostRankGpus, ...] = ()

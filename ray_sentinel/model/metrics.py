"""Metric descriptors, samples and events: what a collector yields."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

MetricKind = Literal["gauge", "counter", "info", "untyped"]
Labels = tuple[tuple[str, str], ...]
"""The labels of a series as (name, value)."""


class Metric(msgspec.Struct, frozen=True):
    """A metric family's name, type and help. Call it to make a sample.

    >>> TEMPERATURE = Metric("hw_gpu_temperature_celsius", "gauge", "GPU temperature.", ("gpu",))
    >>> TEMPERATURE(61.0, "0")
    Sample(name='hw_gpu_temperature_celsius', labels=(('gpu', '0'),), value=61.0, timestamp=None)

    ``host`` is added to every sample by the agent: no collector sets it.
    """

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()

    def __call__(self, value: float, *labels: str, timestamp: float | None = None) -> Sample:
        """One sample; ``labels`` are values in the order of ``self.labels``.

        Raises ValueError if their number differs.
        """
        if len(labels) != len(self.labels):
            raise ValueError(
                f"{self.name} takes the labels {self.labels}, but was given {len(labels)} values"
            )
        return Sample(self.name, tuple(zip(self.labels, labels, strict=True)), value, timestamp)


class Sample(msgspec.Struct, frozen=True, gc=False):
    """One value of one series. ``timestamp`` is in Unix seconds, or None for "now".

    There are thousands of them, and none can be part of a cycle, so they are exempt from garbage
    collection, which would stop every thread of the agent.
    """

    name: str
    labels: Labels
    value: float
    timestamp: float | None = None


class Family(msgspec.Struct, frozen=True):
    """A metric and its samples of one collection."""

    metric: Metric
    samples: tuple[Sample, ...]


def families_of(figures: Iterable[tuple[Any, ...]]) -> tuple[Family, ...]:
    """Families of single figures: (metric, value, values of its labels ...) each. A value that is
    None is not known, and left out.

    >>> steps = Metric("train_step", "gauge", "", ("rank",))
    >>> [len(family.samples) for family in families_of([(steps, 3, "0"), (steps, None, "1")])]
    [1]
    """
    found: dict[Metric, list[Sample]] = {}
    for metric, value, *labels in figures:
        if value is not None:
            found.setdefault(metric, []).append(metric(float(value), *labels))
    return tuple(Family(metric, tuple(samples)) for metric, samples in found.items())


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened at one moment: an Xid line, an OOM kill, a link going down."""

    time: float
    kind: str
    """Its kind with dots, source first: "kernel.xid", "kernel.oom", "kernel.hung_task",
    "log.error"."""
    message: str
    severity: Literal["info", "warning", "error", "critical"] = "warning"
    attributes: dict[str, str] = {}
    """Facts parsed from the message, such as ``xid``, ``pci``, ``gpu``, ``pid``, ``device``."""


class CollectorStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one collector; served as ``ray_sentinel_collector_*``."""

    name: str
    state: Literal["starting", "running", "skipped", "quarantined", "stuck"]
    success: bool | None = None
    """Whether the last run succeeded; None before the first has ended."""
    seconds: float | None = None
    last_success: float | None = None
    timeouts: int = 0
    restarts: int = 0
    unkillable: int = 0
    """Processes of this collector that SIGKILL could not end (D state)."""
    message: str = ""
    """Why it is skipped, quarantined or failing; empty when well."""
    interval: float = 0.0

"""How several samples of a series are reduced to one, by the kind of its quantity."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from ray_sentinel.diagnose.quantities import QUANTITIES, Quantity
from ray_sentinel.diagnose.series import Reduce

_GAUGES: dict[str, Reduce] = {
    "train.step": "max",
    "train.fill": "min",
    "train.loss": "max",
    "train.grad_norm": "max",
    "train.raw_grad_norm": "max",
    "rdma.port": "min",
    "scrape.up": "min",
    "mem.used": "max",
    "mem.available": "min",
    "mem.cgroup_used": "max",
    "host.dstate": "max",
    "gpu.vram_used": "max",
    "scrape.duration": "last",
    "err.xid_last": "last",
}
"""How the gauges named here are reduced; all others are averaged. A loss is reduced to its worst
value, because one that is not finite must show."""


def of_quantity(quantity: Quantity) -> Reduce:
    """How cells of a view are reduced."""
    return _GAUGES.get(quantity.key, "last" if quantity.kind == "counter" else "avg")


@cache
def _known() -> Mapping[str, tuple[tuple[tuple[tuple[str, str], ...], Quantity], ...]]:
    found: dict[str, tuple[tuple[tuple[tuple[str, str], ...], Quantity], ...]] = {}
    for quantity in QUANTITIES.values():
        for name in quantity.names:
            found[name.metric] = (*found.get(name.metric, ()), (name.equal, quantity))
    return found


def _quantity(metric: str, labels: Mapping[str, str]) -> Quantity | None:
    for equal, quantity in _known().get(metric, ()):
        if all(labels.get(key) == value for key, value in equal):
            return quantity
    return None


def of_series(metric: str, labels: Mapping[str, str]) -> Reduce:
    """How any series is reduced, even one that no quantity reads.

    >>> of_series("hw_rdma_port_state", {}), of_series("my_requests_total", {})
    ('min', 'last')
    """
    quantity = _quantity(metric, labels)
    if quantity is not None:
        return of_quantity(quantity)
    return "last" if metric.endswith("_total") else "avg"


def grows(metric: str) -> bool:
    """Whether a series counts up, so that its value between two samples lies between them.

    >>> grows("train_step"), grows("hw_load1")
    (True, False)
    """
    quantity = _quantity(metric, {})
    if quantity is None:
        return metric.endswith("_total")
    return quantity.kind == "counter" or quantity.key == "train.step"

"""An anomaly in a series: which, where, when and by how much."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from ray_sentinel.diagnose.panel import SeriesOwner, SeriesPanel
from ray_sentinel.model.diagnosis import Figure, Link, Role

A = TypeVar("A", bound="Anomaly")


class Anomaly(msgspec.Struct, frozen=True, kw_only=True):
    """One deviation in one place. Times are Unix seconds.

    What a detector knows besides are fields of a class of its own, derived from this one.
    """

    kind: str
    """The kind: "rdma.retx", "gpu.hot", "host.memory-ramp", "xid", "loss-nan", ..."""
    text: str
    at: float
    uncertainty: float
    host: str = ""
    gpu: str = ""
    unit: str = ""
    """The part of the host or GPU concerned: device and port, Xid number, ...; empty where there is
    none."""
    size: float = 0.0
    """How large the deviation is, in the quantity's unit."""
    metric: str = ""
    promql: str = ""

    @classmethod
    def of_row(
        cls: type[A], panel: SeriesPanel, row: SeriesOwner, kind: str, text: str, first: int,
        size: float, **own: Any,
    ) -> A:  # fmt: skip
        """An anomaly of one row of a panel, from cell ``first`` on; ``own`` are further fields, or
        others than the row's."""
        fields = {"uncertainty": panel.step, "promql": panel.promql(row), **own}
        return cls(
            kind=kind,
            text=text,
            at=float(panel.times[first]),
            host=row.host,
            gpu=row.gpu,
            unit=row.unit,
            size=size,
            metric=panel.metric,
            **fields,
        )

    def link(self, role: Role) -> Link:
        """The anomaly as a member of a causal chain."""
        return Link(
            role=role,
            text=self.text,
            at=self.at,
            uncertainty=self.uncertainty,
            host=self.host,
            gpu=self.gpu,
            metric=self.metric,
            promql=self.promql,
        )

    def fact(self) -> Figure:
        """The anomaly as a line of evidence."""
        return Figure(
            text=self.text,
            metric=self.metric,
            promql=self.promql,
            host=self.host,
            gpu=self.gpu,
            value=self.size,
            at=self.at,
        )

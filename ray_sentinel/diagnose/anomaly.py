"""An anomaly in a series: which, where, when and by how much."""

from __future__ import annotations

import msgspec

from ray_sentinel.diagnose.panel import SeriesOwner, SeriesPanel
from ray_sentinel.model.diagnosis import Figure, Link, Role


class Anomaly(msgspec.Struct, frozen=True, kw_only=True):
    """One deviation in one place. Times are Unix seconds."""

    kind: str
    """The kind, with dots, its family first: "rdma.retransmits", "gpu.hot", "host.memory"."""
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


def at_row(
    panel: SeriesPanel, row: SeriesOwner, kind: str, text: str, first: int, size: float
) -> Anomaly:
    """An anomaly of one row of a panel, from cell ``first`` on."""
    return Anomaly(
        kind=kind,
        text=text,
        at=float(panel.times[first]),
        uncertainty=panel.step,
        host=row.host,
        gpu=row.gpu,
        unit=row.unit,
        size=size,
        metric=panel.metric,
        promql=panel.promql(row),
    )

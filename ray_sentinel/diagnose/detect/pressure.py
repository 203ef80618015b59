"""Hosts under pressure: CPU, storage and memory, apart from checkpoints."""

from __future__ import annotations

import msgspec
import numpy as np

from ray_sentinel.diagnose import stats
from ray_sentinel.diagnose.anomaly import Anomaly
from ray_sentinel.diagnose.case import JobCase, everywhere
from ray_sentinel.diagnose.panel import SeriesPanel, listed
from ray_sentinel.diagnose.series import Bools, Floats
from ray_sentinel.diagnose.shifts import find_shifts
from ray_sentinel.diagnose.wording import size


class PressureMeasure(msgspec.Struct, frozen=True):
    """A host gauge that shows contention; ``least`` and ``relative`` as in ``find_shifts``: how far
    it must move to exceed its own noise, whatever its level."""

    key: str
    domain: str
    """The domain: "cpu", "storage", "memory", or "tcp", which slows no step by itself."""
    least: float
    relative: float


MEASURES = (
    PressureMeasure("host.procs_running", "cpu", 8.0, 0.35),
    PressureMeasure("host.load", "cpu", 8.0, 0.35),
    PressureMeasure("host.cpu", "cpu", 15.0, 0.25),
    PressureMeasure("host.cpu_pressure", "cpu", 10.0, 0.5),
    PressureMeasure("io.full", "storage", 8.0, 0.5),
    PressureMeasure("io.some", "storage", 12.0, 0.5),
    PressureMeasure("host.procs_blocked", "storage", 5.0, 0.5),
    PressureMeasure("mem.pressure", "memory", 5.0, 0.5),
)
BESIDE = (
    PressureMeasure("host.context_switches", "cpu", 50_000.0, 0.5),
    PressureMeasure("gpu.processes", "cpu", 1.0, 0.1),
    PressureMeasure("io.dirty", "storage", 4e9, 1.0),
    PressureMeasure("io.writeback", "storage", 1e9, 1.0),
    PressureMeasure("tcp.retx", "tcp", 10.0, 1.0),
    PressureMeasure("tcp.resets", "tcp", 1.0, 1.0),
    PressureMeasure("tcp.aborts", "tcp", 0.05, 1.0),
)
"""Measures that move with contention: they are reported with the others, but are not a cause by
themselves. Counters are judged by their rate."""
SMOOTH_SECONDS = 60.0
"""Seconds over which a gauge is averaged: a single reading is noise."""
ALIKE = 0.25
"""Share of the greatest rise from which a host is under the same pressure."""


class Pressure(msgspec.Struct, frozen=True, kw_only=True):
    """One measure that rose on some hosts at about the same time."""

    measure: str
    domain: str
    hosts: tuple[str, ...]
    uniform: bool
    """The measure rose on nearly all hosts."""
    at: float
    cells: Bools
    anomalies: tuple[Anomaly, ...]

    @property
    def text(self) -> str:
        """The rise in one line."""
        where = "all hosts" if self.uniform else listed(self.hosts)
        return f"{self.anomalies[0].text.split(': ', 1)[1]} on {where}"


def find(case: JobCase) -> tuple[Pressure, ...]:
    """Lasting rises outside checkpoints, in order of time."""
    return _risen(case, MEASURES)


def beside(case: JobCase) -> tuple[Pressure, ...]:
    """Lasting rises of measures that do not by themselves slow any step."""
    return _risen(case, BESIDE)


def _risen(case: JobCase, measures: tuple[PressureMeasure, ...]) -> tuple[Pressure, ...]:
    found: list[Pressure] = []
    for measure in measures:
        panel = case.view.panel(measure.key)
        if not panel.empty:
            panel = msgspec.structs.replace(panel, values=panel.levels())
            found += _of_measure(case, measure, panel)
    return tuple(sorted(map(_shared, found, [found] * len(found)), key=lambda one: one.at))


def _shared(one: Pressure, found: list[Pressure]) -> Pressure:
    """Mark a rise as uniform if another measure of its domain rose on all hosts at the same
    time."""
    for other in found:
        together = (one.cells & other.cells).sum() > 0.5 * min(one.cells.sum(), other.cells.sum())
        if other.uniform and other.domain == one.domain and together:
            return msgspec.structs.replace(one, uniform=True)
    return one


def _of_measure(case: JobCase, measure: PressureMeasure, panel: SeriesPanel) -> list[Pressure]:
    hosts, values = panel.per_host(stats.largest)
    values = np.where(case.steady, values, np.nan)
    rises = [
        _rise(case, measure, panel, host, row) for host, row in zip(hosts, values, strict=True)
    ]
    found = [rise for rise in rises if rise is not None]
    groups: list[list[tuple[Anomaly, Bools]]] = []
    for rise in sorted(found, key=lambda pair: pair[0].at):
        if groups and rise[0].at - groups[-1][0][0].at <= 300.0:
            groups[-1].append(rise)
        else:
            groups.append([rise])
    return [_pressure(case, measure, group, hosts, values) for group in groups]


def _rise(
    case: JobCase, measure: PressureMeasure, panel: SeriesPanel, host: str, row: Floats
) -> tuple[Anomaly, Bools] | None:
    width = max(1, int(SMOOTH_SECONDS / case.cell))
    calm = np.where(np.isfinite(row), stats.smoothed(row, width), np.nan)
    shifts = find_shifts(calm, case.times, least=measure.least, relative=measure.relative)
    ups = [shift for shift in shifts if shift.size > 0]
    if not ups:
        return None
    usual = ups[0].before
    border = usual + 0.5 * max(shift.after - usual for shift in ups)
    cells = stats.joined(calm > border, width + 1)
    if cells.sum() * case.cell < 60.0:
        return None
    rise = stats.middle(row[cells]) - usual
    source = panel.of(host).rows[0]
    anomaly = Anomaly(
        kind=f"host.{measure.key.split('.')[1]}",
        text=f"{host}: {panel.quantity.title} up by {_amount(panel, rise)} "
        f"(usually {_amount(panel, usual, bare=True)})",
        at=ups[0].at,
        uncertainty=max(case.cell, 30.0, ups[0].uncertainty),
        host=host,
        size=rise,
        metric=panel.metric,
        promql=panel.promql(source),
    )
    return anomaly, cells


def _amount(panel: SeriesPanel, value: float, *, bare: bool = False) -> str:
    """A level with or without its unit; a counter's level is per second."""
    if panel.quantity.unit == "B":
        return size(value)
    number = f"{value:,.0f}" if abs(value) >= 1.0 or value == 0.0 else f"{value:.2g}"
    rate = "/s" if panel.quantity.kind == "counter" else ""
    return f"{number}{rate}" if bare or rate else f"{number} {panel.quantity.unit}".rstrip()


def _pressure(
    case: JobCase, measure: PressureMeasure, group: list[tuple[Anomaly, Bools]],
    hosts: tuple[str, ...], values: Floats,
) -> Pressure:  # fmt: skip
    """Combine the hosts that rose together, including those too noisy to be detected by themselves,
    and leaving out those whose rise is small."""
    cells = np.any([flags for _, flags in group], axis=0)
    inside, outside = cells & case.steady, ~cells & case.steady
    rises = stats.median(values[:, inside], 1) - stats.median(values[:, outside], 1)
    sizes = {anomaly.host: anomaly.size for anomaly, _ in group}
    sizes = {host: sizes.get(host, float(rise)) for host, rise in zip(hosts, rises, strict=True)}
    greatest = max(anomaly.size for anomaly, _ in group)
    members = [host for host in hosts if sizes[host] >= ALIKE * greatest]
    shown = [pair for pair in group if pair[0].host in members]
    return Pressure(
        measure=measure.key,
        domain=measure.domain,
        hosts=tuple(members),
        uniform=everywhere(len(members), len(hosts)),
        at=min(anomaly.at for anomaly, _ in shown),
        cells=np.any([flags for _, flags in shown], axis=0),
        anomalies=tuple(anomaly for anomaly, _ in shown),
    )

"""The series of one job as the playbooks see them: quantities, not metric names, on one axis.

A view covers one time range at one resolution. Each quantity is read once, when it is first asked
for, and kept. Samples that must not be trusted (synthetic fill of the TensorBoard bridge, ghost
data of a stuck exporter) are taken out here, so that no playbook can trip over them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property

import msgspec
import numpy as np

from ray_sentinel import regex as re
from ray_sentinel.diagnose import reduction, stats
from ray_sentinel.diagnose.panel import SeriesOwner, SeriesPanel
from ray_sentinel.diagnose.quantities import GPU_LABELS, HOST_LABELS, QUANTITIES, Name, Quantity
from ray_sentinel.diagnose.runs import training_rows
from ray_sentinel.diagnose.series import Bools, Floats, Grid, Selector, TimeSeries, axis

# Which host and GPU a series belongs to, whatever its source labels them with.
#
# Our series carry ``host``. Ray's ``ray_node_*`` carry ``ip`` (and ``instance``), dcgm-exporter's
# ``Hostname``. An address is turned into a host name where any series carries both; else the
# address itself is the host.

_NAMES = tuple(label for label in HOST_LABELS if label != "ip")
_PORT = re.compile(r":\d+$")


def address_of(labels: Mapping[str, str]) -> str:
    """The network address in the labels, without a port; empty if there is none."""
    return labels.get("ip") or _PORT.sub("", labels.get("instance", ""))


def aliases(label_sets: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Address → host name, from series that carry both; an ambiguous address is left out."""
    found: dict[str, set[str]] = {}
    for labels in label_sets:
        host = next((labels[name] for name in _NAMES if labels.get(name)), "")
        if not host:
            continue
        for address in {labels.get("ip", ""), _PORT.sub("", labels.get("instance", ""))}:
            if address and address != host:
                found.setdefault(address, set()).add(host)
    return {address: next(iter(hosts)) for address, hosts in found.items() if len(hosts) == 1}


def host_of(labels: Mapping[str, str], known: Mapping[str, str]) -> str:
    """The host of a series; empty if the labels name none."""
    for label in HOST_LABELS:
        if value := labels.get(label):
            return known.get(value, value)
    address = address_of(labels)
    return known.get(address, address)


def gpu_of(labels: Mapping[str, str]) -> str:
    """The GPU of a series; empty if it belongs to the whole host."""
    return next((labels[label] for label in GPU_LABELS if labels.get(label)), "")


MAX_CELLS = 3000
"""Most cells on the axis of a view; for a longer time they get wider. At 10 s, that is eight hours
at full resolution, and at 30 s a day."""
DEFAULT_INTERVAL = 15.0
"""Seconds between two samples, where the source does not show it."""
_PROBES = (
    "hw_scrape_duration_seconds",
    "hw_gpu_power_watts",
    "hw_procs_running",
    "up",
    "DCGM_FI_DEV_POWER_USAGE",
    "ray_node_mem_used",
    "ray_node_gpus_utilization",
    "train_step",
    "tb_step",
)
_NAMING = (
    "up",
    "hw_scrape_duration_seconds",
    "hw_procs_running",
    "hw_host_info",
    "node_uname_info",
    *(name.metric for one in QUANTITIES.values() for name in one.names
      if name.metric.startswith("DCGM_")),
)  # fmt: skip
"""Series that show which host has which address: exporters on one host are told apart by it."""
_IGNORED_LABELS = frozenset({"__name__", "job", "instance", "SessionName", "Version", "uuid"})


class View:
    """Quantities of one source over ``start`` to ``end``, in cells of ``step`` seconds."""

    def __init__(
        self,
        source: TimeSeries,
        start: float,
        end: float,
        *,
        step: float | None = None,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.source = source
        self.families = frozenset(source.families())
        self.interval = scrape_interval(source, self.families, start, end)
        self.step = step or cell_size(self.interval, end - start)
        # Including the cell that holds the end: what happened there ended the job.
        cells = max(1, int(np.ceil((end - start) / self.step - 1e-9)))
        self.times = axis(start, start + cells * self.step, self.step)
        self.hidden: dict[str, Bools] = {}
        """Host → cells (T,) of its hardware series that must not be trusted, and are left out."""
        self._progress = progress
        self._panels: dict[str, SeriesPanel] = {}

    @property
    def start(self) -> float:
        """The first cell's time."""
        return float(self.times[0])

    @property
    def end(self) -> float:
        """The last cell's time."""
        return float(self.times[-1])

    def has(self, key: str) -> bool:
        """Whether the source has any family for the quantity (it may still be empty here)."""
        return any(name.metric in self.families for name in QUANTITIES[key].names)

    def panel(self, key: str) -> SeriesPanel:
        """The quantity's series; an empty panel where there are none."""
        if key not in self._panels:
            self._panels[key] = self._load(QUANTITIES[key])
        panel = self._panels[key]
        return self._trusted(panel)

    def raw(self, key: str) -> SeriesPanel:
        """Like ``panel``, but including the samples that must not be trusted."""
        self.panel(key)
        return self._panels[key]

    @cached_property
    def _hosts(self) -> Mapping[str, str]:
        """Address → host name."""
        return aliases(
            labels
            for name in _NAMING
            if name in self.families
            for labels in self.source.label_sets(name, self.start, self.end)
        )

    def _load(self, quantity: Quantity) -> SeriesPanel:
        reduce = reduction.of_quantity(quantity)
        for name in quantity.names:
            if name.metric not in self.families:
                continue
            self._progress(name.metric)
            grid = self.source.query_range(
                Selector(name.metric, name.equal), self.start, self.end, self.step, reduce
            )
            panel = self._panel(quantity, name, grid)
            if not panel.empty:
                return panel
        return SeriesPanel(quantity, quantity.names[0].metric, (), self.times,
                     np.empty((0, self.times.size)))  # fmt: skip

    def _panel(self, quantity: Quantity, name: Name, grid: Grid) -> SeriesPanel:
        rows, values = [], []
        for labels, series in zip(grid.labels, grid.values, strict=True):
            if quantity.group != "train":
                # A loss that is not finite is a finding; a sensor value that is not finite is a
                # missing one.
                series = np.where(np.isfinite(series), series, np.nan)
            if np.isnan(series).all():
                continue
            rows.append(self._row(quantity, labels))
            values.append(series * name.scale)
        array = np.array(values, dtype=np.float64).reshape(len(rows), self.times.size)
        return SeriesPanel(quantity, name.metric, tuple(rows), self.times,
                           _without_holes(array, quantity.kind == "counter"))  # fmt: skip

    def _row(self, quantity: Quantity, labels: Mapping[str, str]) -> SeriesOwner:
        host, gpu = host_of(labels, self._hosts), gpu_of(labels)
        own = tuple(
            (key, value) for key, value in sorted(labels.items()) if key not in _IGNORED_LABELS
        )
        unit = "/".join(labels[label] for label in quantity.by if labels.get(label))
        if "host" not in labels and "ip" not in labels and labels.get("instance"):
            own = (*own, ("instance", labels["instance"]))
        return SeriesOwner(host, gpu, unit, own)

    def _trusted(self, panel: SeriesPanel) -> SeriesPanel:
        if panel.quantity.group == "train":
            return self._without_fill(training_rows(panel))
        if not self.hidden or not panel.metric.startswith("hw_"):
            return panel
        values = panel.values
        for index, row in enumerate(panel.rows):
            if (cells := self.hidden.get(row.host)) is not None:
                values = values.copy() if values is panel.values else values
                values[index, cells] = np.nan
        return msgspec.structs.replace(panel, values=values)

    def _without_fill(self, panel: SeriesPanel) -> SeriesPanel:
        if panel.quantity.key == "train.fill" or not panel.metric.startswith("tb_"):
            return panel
        fill = self.raw("train.fill")
        if fill.empty or not (fill.values > 0).any():
            return panel
        values = panel.values.copy()
        for index, row in enumerate(panel.rows):
            for other, flags in zip(fill.rows, fill.values, strict=True):
                if other.host == row.host:
                    values[index, flags > 0] = np.nan
        return msgspec.structs.replace(panel, values=values)


def cell_size(interval: float, seconds: float) -> float:
    """Seconds of a cell: the scrape interval, or the multiple of it that makes no more than
    ``MAX_CELLS``."""
    return interval * max(1, int(np.ceil(seconds / interval / MAX_CELLS)))


def scrape_interval(source: TimeSeries, families: Iterable[str], start: float, end: float) -> float:
    """The usual time between two samples of a series, to the second (at least 1)."""
    present = set(families)
    width = min(900.0, max(end - start, 1.0))
    for name in (probe for probe in _PROBES if probe in present):
        for right in (end - (end - start) * 0.4, end, start + width):
            gaps: list[Floats] = [
                np.diff(series.times)
                for series in source.samples(Selector(name), right - width, right)
                if series.times.size > 2
            ]
            if gaps:
                usual = stats.middle(np.concatenate(gaps))
                return max(round(usual), 1.0) if usual > 0 else DEFAULT_INTERVAL
    return DEFAULT_INTERVAL


def _without_holes(values: Floats, counts: bool) -> Floats:
    """The values, with holes filled that come only from a source slower than the axis or from one
    lost scrape."""
    known = ~np.isnan(values)
    spacings = [np.diff(np.flatnonzero(row)) for row in known[:256]]
    spacings = [spacing for spacing in spacings if spacing.size]
    if not spacings:
        return values
    usual = int(np.ceil(np.median(np.concatenate(spacings))))
    return (stats.counted if counts else stats.carried)(values, max(usual, 1))

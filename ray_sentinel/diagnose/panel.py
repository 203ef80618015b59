"""A quantity's series on one time axis, with their hosts and GPUs named."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from ray_sentinel.diagnose.quantities import Quantity
from ray_sentinel.diagnose.series import Floats, Selector
from ray_sentinel.model.diagnosis import Figure

GLITCH_CELLS = 3
"""Number of cells within which a counter that fell and is back was misread, not reset."""


class SeriesOwner(msgspec.Struct, frozen=True):
    """The host, GPU and unit that a series belongs to."""

    host: str
    gpu: str = ""
    unit: str = ""
    """What else tells the series apart: "mlx5_0/1" for an RDMA port, "79" for an Xid."""
    labels: tuple[tuple[str, str], ...] = ()
    """The source's own labels that select this series."""

    @property
    def title(self) -> str:
        """Host, GPU and unit in one word."""
        return ":".join(
            part for part in (self.host, self.gpu and f"gpu{self.gpu}", self.unit) if part
        )


class SeriesPanel(msgspec.Struct, frozen=True):
    """Series of one quantity: ``values`` (S, T) over ``times`` (T,), one row a series."""

    quantity: Quantity
    metric: str
    rows: tuple[SeriesOwner, ...]
    times: Floats
    values: Floats

    @property
    def empty(self) -> bool:
        """Whether it has no rows."""
        return not self.rows

    @property
    def hosts(self) -> tuple[str, ...]:
        """Hosts that have a row, sorted."""
        return tuple(sorted({row.host for row in self.rows}))

    @property
    def step(self) -> float:
        """Seconds between two cells."""
        return float(self.times[1] - self.times[0]) if self.times.size > 1 else 1.0

    @property
    def unit(self) -> str:
        """The unit of ``levels``."""
        return f"{self.quantity.unit}/s" if self.quantity.kind == "counter" else self.quantity.unit

    def levels(self) -> Floats:
        """What is compared and drawn (S, T): the values, or a counter's rates."""
        return self.rates() if self.quantity.kind == "counter" else self.values

    def promql(self, row: SeriesOwner | None = None) -> str:
        """The query that gives the series again; a counter as its rate over five minutes."""
        query = self._selector(row)
        return f"rate({query}[5m])" if self.quantity.kind == "counter" else query

    def growth_promql(self, row: SeriesOwner) -> str:
        """The query for how much a counter that seldom moves grew within an hour."""
        return f"increase({self._selector(row)}[1h])"

    def figure(
        self, text: str, value: float | None, unit: str = "", *, row: SeriesOwner | None = None,
        at: float | None = None,
    ) -> Figure:  # fmt: skip
        """A line of evidence, from one row or from all."""
        host = row.host if row is not None else ""
        return Figure(text=text, metric=self.metric, promql=self.promql(row), host=host,
                      value=value, unit=unit, at=at)  # fmt: skip

    def _selector(self, row: SeriesOwner | None) -> str:
        return str(Selector(self.metric, row.labels if row is not None else ()))

    def of(self, host: str) -> SeriesPanel:
        """Only the rows of one host."""
        return self.pick(lambda row: row.host == host)

    def pick(self, wanted: Callable[[SeriesOwner], bool]) -> SeriesPanel:
        """Only the rows that are wanted."""
        keep = [index for index, row in enumerate(self.rows) if wanted(row)]
        return msgspec.structs.replace(
            self, rows=tuple(self.rows[index] for index in keep), values=self.values[keep]
        )

    def per_host(self, reduce: Callable[[Floats, int], Floats]) -> tuple[tuple[str, ...], Floats]:
        """Hosts and an (H, T) array: the rows of each host reduced, for example by
        ``stats.mean``."""
        hosts = self.hosts
        out = np.full((len(hosts), self.times.size), np.nan)
        owner = np.array([row.host for row in self.rows])
        for index, host in enumerate(hosts):
            out[index] = reduce(self.values[owner == host], 0)
        return hosts, out

    def increases(self) -> Floats:
        """For a counter: how much each cell added (S, T); the first known cell adds nothing.

        A reset counts from zero. A dip of a few cells back to the old value is a glitch of the
        source and counts for nothing.
        """
        return np.array([_increases(row) for row in self.values]).reshape(self.values.shape)

    def rates(self) -> Floats:
        """For a counter: its rate in 1/s (S, T); after a hole the mean rate over the hole."""
        elapsed = np.array([_elapsed(row) for row in self.values]).reshape(self.values.shape)
        return self.increases() / (elapsed * self.step)


def _elapsed(values: Floats) -> Floats:
    """How many cells lie between each known value of (T,) and the one before it."""
    known = np.flatnonzero(np.isfinite(values))
    out = np.full(values.size, np.nan)
    out[known[1:]] = np.diff(known)
    return out


def _increases(values: Floats) -> Floats:
    known = np.flatnonzero(np.isfinite(values))
    out = np.full(values.size, np.nan)
    if known.size < 2:
        return out
    level = values[known].copy()
    for at in np.flatnonzero(np.diff(level) < 0) + 1:
        after = level[at : at + GLITCH_CELLS + 1]
        back = np.flatnonzero(after >= level[at - 1])
        if back.size and level[at - 1] > 0:
            level[at : at + back[0]] = level[at - 1]
    steps = np.diff(level)
    out[known[1:]] = np.where(steps >= 0, steps, level[1:])
    # Between two samples of a slow source the counter was not read; that does not mean that it
    # stood still.
    return out


def listed(items: Sequence[str], limit: int = 6) -> str:
    """``items`` joined by commas; past ``limit`` only their number.

    >>> listed(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    shown = ", ".join(items[:limit])
    return shown if len(items) <= limit else f"{shown} and {len(items) - limit} more"

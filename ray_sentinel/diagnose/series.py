"""The interface through which time series are read, and the plain arrays that it returns.

Every source of series (a Prometheus, the embedded history, a list in memory) implements it, so that
everything that reasons about series works on any of them. A missing value is NaN in an array; a
sample whose own value was NaN or infinite is ±inf: "not finite" is a fact about the job, "missing"
is a fact about the monitoring.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from ray_sentinel.model.exposition import series_text

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Reduce = Literal["last", "avg", "max", "min"]


class Selector(msgspec.Struct, frozen=True):
    """One metric family, narrowed by labels that must be equal.

    >>> str(Selector("hw_load1", (("host", "n1"),)))
    'hw_load1{host="n1"}'
    """

    name: str
    equal: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return series_text(self.name, self.equal)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether a series with these labels is selected."""
        return all(labels.get(key, "") == value for key, value in self.equal)


class Samples(msgspec.Struct, frozen=True):
    """The samples of one series as they were stored.

    ``times`` and ``values`` have the same length; times are Unix seconds and rise.
    """

    labels: dict[str, str]
    times: Floats
    values: Floats


class Grid(msgspec.Struct, frozen=True):
    """Several series on one regular time axis.

    ``times`` (T,) are the right ends of buckets of ``step`` seconds; ``values`` (S, T) hold NaN
    if a series has no sample in a bucket. ``labels`` has S entries.
    """

    labels: tuple[dict[str, str], ...]
    times: Floats
    values: Floats


class TimeSeries(Protocol):
    """A source of time series.

    Every method may raise UnreachableError; a missing family is empty, never an error.
    """

    @property
    def title(self) -> str:
        """Its name for people: a URL or a path."""

    @property
    def notes(self) -> Sequence[str]:
        """What a reader must know about the source, such as a missing tail."""

    def families(self) -> tuple[str, ...]:
        """All metric names, sorted."""

    def span(self) -> tuple[float, float] | None:
        """First and last moment with data (Unix seconds), or None if there are none."""

    def label_sets(self, name: str, start: float, end: float) -> list[dict[str, str]]:
        """The labels (without ``__name__``) of each series of a family in a time range."""

    def samples(self, selector: Selector, start: float, end: float) -> list[Samples]:
        """The samples in ``(start, end]`` as they were stored."""

    def query_range(
        self, selector: Selector, start: float, end: float, step: float, reduce: Reduce = "last"
    ) -> Grid:
        """The series on the axis ``axis(start, end, step)``, each bucket reduced to one value."""


def axis(start: float, end: float, step: float) -> Floats:
    """The right ends of the buckets that cover ``start`` to ``end``: start, start + step, ..."""
    count = max(int(np.floor((end - start) / step + 1e-9)) + 1, 1)
    return start + step * np.arange(count, dtype=np.float64)


def bucketed(series: Samples, times: Floats, step: float, reduce: Reduce) -> Floats:
    """One series on the axis ``times``: the samples in ``(t - step, t]`` reduced to one value.

    A NaN sample counts as infinite, so that it is not taken for a missing one.
    """
    out = np.full(times.size, np.nan)
    if not times.size or not series.times.size:
        return out
    index = np.ceil((series.times - times[0]) / step - 1e-9).astype(np.int64)
    inside = (index >= 0) & (index < times.size)
    index = index[inside]
    values = np.where(np.isnan(series.values), np.inf, series.values)[inside]
    if reduce == "last":
        out[index] = values
        return out
    if reduce == "avg":
        total, count = np.zeros(times.size), np.zeros(times.size)
        np.add.at(total, index, values)
        np.add.at(count, index, 1.0)
        seen = count > 0
        out[seen] = total[seen] / count[seen]
        return out
    pick = np.fmax if reduce == "max" else np.fmin
    pick.at(out, index, values)
    return out

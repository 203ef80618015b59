"""Series in memory, with the same interface as any other source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ray_sentinel.diagnose.series import Grid, Reduce, Samples, Selector, axis, bucketed


class MemorySource:
    """A source of the samples that were added to it, by metric name."""

    def __init__(self, title: str = "memory", notes: Sequence[str] = ()) -> None:
        self.title = title
        self.notes: list[str] = list(notes)
        self._series: dict[str, list[Samples]] = {}

    def add(
        self, name: str, labels: Mapping[str, str], times: Iterable[float], values: Iterable[float]
    ) -> None:
        """Add one series with increasing times."""
        samples = Samples(
            dict(labels),
            np.asarray(times, dtype=np.float64),
            np.asarray(values, dtype=np.float64),
        )
        if samples.times.size:
            self._series.setdefault(name, []).append(samples)

    def families(self) -> tuple[str, ...]:
        """As for any source."""
        return tuple(sorted(self._series))

    def span(self) -> tuple[float, float] | None:
        """As for any source."""
        times = [series.times for family in self._series.values() for series in family]
        if not times:
            return None
        return float(min(one[0] for one in times)), float(max(one[-1] for one in times))

    def label_sets(self, name: str, start: float, end: float) -> list[dict[str, str]]:
        """As for any source."""
        return [
            dict(series.labels)
            for series in self._series.get(name, ())
            if ((series.times >= start) & (series.times <= end)).any()
        ]

    def samples(self, selector: Selector, start: float, end: float) -> list[Samples]:
        """As for any source."""
        found = []
        for series in self._series.get(selector.name, ()):
            inside = (series.times > start) & (series.times <= end)
            if inside.any() and selector.matches(series.labels):
                found.append(Samples(series.labels, series.times[inside], series.values[inside]))
        return found

    def query_range(
        self, selector: Selector, start: float, end: float, step: float, reduce: Reduce = "last"
    ) -> Grid:
        """As for any source."""
        times = axis(start, end, step)
        series = self.samples(selector, times[0] - step, times[-1])
        values = [bucketed(one, times, step, reduce) for one in series]
        return Grid(
            tuple(one.labels for one in series),
            times,
            np.array(values, dtype=np.float64).reshape(len(series), times.size),
        )

"""A job in an embedded history, as the coordinator would have written it in the job's course."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ray_sentinel.model.exposition import series_text
from ray_sentinel.store.history.file import HistoryFile
from ray_sentinel.store.history.writer import Rows
from tests.support.tsdb_scenarios.world import Series

TURN_SECONDS = 600.0
"""Of the job's time, between two writes."""


def keep(series: Iterable[Series], file: HistoryFile) -> None:
    """Write all of it, turn by turn, so that it is thinned on the way."""
    groups: dict[tuple[str, bytes], list[tuple[str, np.ndarray]]] = {}
    for name, labels, times, values in series:
        own = {key: value for key, value in labels.items() if key != "host"}
        group = (labels.get("host", ""), np.asarray(times, dtype=np.float64).tobytes())
        groups.setdefault(group, []).append(
            (series_text(name, sorted(own.items())), np.asarray(values))
        )
    parts = []
    for (host, stamps), members in groups.items():
        members.sort(key=lambda member: member[0])
        table = np.stack([values for _, values in members], axis=1).astype(np.float64)
        parts.append((tuple(key for key, _ in members), host, np.frombuffer(stamps), table))
    ends = [float(times[at]) for _, _, times, _ in parts if times.size for at in (0, -1)]
    for start in np.arange(min(ends), max(ends) + 1e-3, TURN_SECONDS):
        rows = []
        for keys, host, times, table in parts:
            first, last = np.searchsorted(times, [start, start + TURN_SECONDS])
            told = tuple((float(times[i]), host, table[i].tobytes()) for i in range(first, last))
            rows.append(Rows(keys, told))
        if not file.put(rows, float(start + TURN_SECONDS)):
            raise RuntimeError(file.problem)

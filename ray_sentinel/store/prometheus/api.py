"""A Prometheus as a source of time series, over its HTTP API.

Answers to range queries are matrices of ``[time, "value"]`` pairs
(https://prometheus.io/docs/prometheus/latest/querying/api/). The pairs are cut out of the JSON as
raw bytes and read by numpy, which is three times as fast as building Python objects from them.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from ray_sentinel import regex as re
from ray_sentinel.clock import LATEST
from ray_sentinel.diagnose.series import Floats, Grid, Reduce, Samples, Selector, axis
from ray_sentinel.store.prometheus.http import PrometheusHttp

# First and last sample of a Prometheus, which it does not report: found in ever finer steps.

MAX_POINTS = 10_000
"""Most points of one series in one range query; Prometheus itself refuses more than 11,000."""

_NO_BRACKETS = b'[]" \n'


def find_span(http: PrometheusHttp, names: Sequence[str]) -> tuple[float, float] | None:
    """First and last sample of a Prometheus, found by queries of finer and finer ranges.

    ``/api/v1/status/tsdb`` gives the range of the head block only, and nothing at all of a
    database that holds finished blocks alone.
    """
    if not names:
        return None
    now = time.time()
    lowest = re.search(
        r"^prometheus_tsdb_lowest_timestamp_seconds (\S+)$", http.text("/metrics"), re.MULTILINE
    )
    start, end = now - 2 * 365 * 86400.0, now + 86400.0
    with contextlib.suppress(ValueError):  # it is no number: as if it were not there
        if lowest and 0 < float(lowest.group(1)) < end:
            start = float(lowest.group(1))
    probes = _probe_names(names)
    for step in (86400.0, 3600.0, 300.0, 15.0):
        while (end - start) / step > MAX_POINTS:
            step *= 2
        found = _presence(http, probes, start, end, step)
        if found is None:
            return None
        start, end = found[0] - step, found[1]
    return start, end


def _presence(
    http: PrometheusHttp, probes: str, start: float, end: float, step: float
) -> tuple[float, float] | None:
    query = {
        "query": f'count(last_over_time({{__name__=~"{probes}"}}[{round(step)}s]))',
        "start": stamp(start),
        "end": stamp(end + step),
        "step": f"{step:.3f}",
    }
    found = [pairs for _, pairs in _ask_matrix(http, "/api/v1/query_range", query)]
    times = np.concatenate([pairs[:, 0] for pairs in found]) if found else np.empty(0)
    return (float(times.min()), float(times.max())) if times.size else None


def _probe_names(names: Sequence[str]) -> str:
    wanted = ("up", "hw_scrape_duration_seconds", "hw_procs_running", "tb_step", "train_step",
              "ray_node_mem_used", "hw_gpu_power_watts")  # fmt: skip
    found = [name for name in wanted if name in names]
    return "|".join(found or [re.escape(name) for name in names[:20]])


def stamp(moment: float) -> str:
    """Unix seconds in the API's format, to the millisecond that it keeps."""
    return f"{moment:.3f}"


class PrometheusSource:
    """Reads series from a Prometheus at ``url`` by its API ``/api/v1``.

    ``deadline`` is for one request, in seconds. Raises UnreachableError if it does not answer,
    InputError if what answers is not a Prometheus.
    """

    def __init__(
        self,
        url: str,
        *,
        title: str = "",
        deadline: float = 30.0,
        span: tuple[float, float] | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        self._http = PrometheusHttp(url, deadline)
        self.title = title or self._http.url
        self.notes: list[str] = list(notes)
        self._span = span
        self._families: tuple[str, ...] | None = None

    @property
    def url(self) -> str:
        """Its address, without a slash at the end."""
        return self._http.url

    @property
    def seconds_waiting(self) -> float:
        """Time spent waiting for Prometheus's answers."""
        return self._http.seconds_waiting

    def families(self) -> tuple[str, ...]:
        """As for any source."""
        if self._families is None:
            answer = self._http.data("/api/v1/label/__name__/values", list[str])
            self._families = tuple(sorted(answer))
        return self._families

    def span(self) -> tuple[float, float] | None:
        """As for any source."""
        if self._span is None:
            self._span = find_span(self._http, self.families())
        return self._span

    def find_span(self, blocks: tuple[float, float] | None) -> None:
        """Find the span of finished blocks (their range is known) and the head together."""
        head = self._http.data("/api/v1/status/tsdb", _Tsdb).headStats or _Head()
        low, high = head.minTime / 1000, head.maxTime / 1000
        ends = [blocks] if blocks else []
        if 0 < low <= high:
            ends.append((low, high))
        if ends:
            self._span = min(a for a, _ in ends), max(b for _, b in ends)

    def label_sets(self, name: str, start: float, end: float) -> list[dict[str, str]]:
        """As for any source."""
        query = {"match[]": name, "start": stamp(start), "end": stamp(end)}
        return [
            _plain(row) for row in self._http.data("/api/v1/series", list[dict[str, str]], query)
        ]

    def samples(self, selector: Selector, start: float, end: float) -> list[Samples]:
        """As for any source."""
        milliseconds = max(round((end - start) * 1000), 1)
        query = {"query": f"{selector}[{milliseconds}ms]", "time": stamp(end)}
        return [
            Samples(labels, pairs[:, 0], pairs[:, 1])
            for labels, pairs in _ask_matrix(self._http, "/api/v1/query", query)
        ]

    def query_range(
        self, selector: Selector, start: float, end: float, step: float, reduce: Reduce = "last"
    ) -> Grid:
        """As for any source."""
        times = axis(start, end, step)
        expression = f"{reduce}_over_time({selector}[{round(step * 1000)}ms])"
        rows: dict[tuple[tuple[str, str], ...], Floats] = {}
        for part in np.array_split(times, int(np.ceil(times.size / MAX_POINTS))):
            self._range(expression, part, times, step, rows)
        labels = tuple(dict(key) for key in rows)
        values = np.array(list(rows.values())).reshape(len(rows), times.size)
        return Grid(labels, times, values)

    def _range(
        self,
        expression: str,
        part: Floats,
        times: Floats,
        step: float,
        rows: dict[tuple[tuple[str, str], ...], Floats],
    ) -> None:
        query = {
            "query": expression,
            "start": stamp(part[0]),
            "end": stamp(part[-1]),
            "step": f"{step:.3f}",
        }
        for labels, pairs in _ask_matrix(self._http, "/api/v1/query_range", query):
            row = rows.setdefault(tuple(sorted(labels.items())), np.full(times.size, np.nan))
            places = np.rint((pairs[:, 0] - times[0]) / step)
            asked = (places >= 0) & (places < times.size)
            values = pairs[asked, 1]
            row[places[asked].astype(np.int64)] = np.where(np.isnan(values), np.inf, values)


def _plain(labels: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if key != "__name__"}


class _MatrixSeries(msgspec.Struct):
    """One series; its values stay as they came until ``_pairs_of`` reads them."""

    metric: dict[str, str]
    values: msgspec.Raw = msgspec.Raw(b"[]")


class _Matrix(msgspec.Struct):
    resultType: str
    result: list[_MatrixSeries] = []


class _Head(msgspec.Struct):
    """Milliseconds since 1970; both 0 where the head is empty."""

    minTime: int = 0
    maxTime: int = 0


class _Tsdb(msgspec.Struct):
    headStats: _Head | None = None


def _ask_matrix(
    http: PrometheusHttp, path: str, query: Mapping[str, str]
) -> list[tuple[dict[str, str], Floats]]:
    """The series of an answer: their labels without the name, and (N, 2) times and values.

    Raises what ``PrometheusHttp`` raises.
    """
    found = http.data(path, _Matrix, query).result
    try:
        return [(_plain(series.metric), _pairs_of(series.values)) for series in found]
    except ValueError:
        raise http.not_prometheus(f"{path}: the samples are no pairs of numbers") from None


def _pairs_of(values: msgspec.Raw) -> Floats:
    """``[[t,"v"],...]`` as an (N, 2) array. Raises ValueError for anything else."""
    text = bytes(values).translate(None, _NO_BRACKETS).decode("ascii")
    if not text:
        return np.empty((0, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # numpy's way to say that it stopped
        try:
            pairs = np.fromstring(text, sep=",", dtype=np.float64).reshape(-1, 2)
        except DeprecationWarning as error:
            raise ValueError(str(error)) from None
    return pairs[(pairs[:, 0] >= 0) & (pairs[:, 0] < LATEST)]

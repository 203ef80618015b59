"""A Prometheus as a source of time series, over its HTTP API.

https://prometheus.io/docs/prometheus/latest/querying/api/ — range queries give matrices of
``[time, "value"]`` pairs. They are cut out of the JSON as raw bytes and read by numpy, which is
three times as fast as building Python objects from them.
"""

from __future__ import annotations

import http.client
import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from ray_sentinel.diagnose.series import Floats, Grid, Reduce, Samples, Selector, axis
from ray_sentinel.errors import InputError, UnreachableError

MAX_POINTS = 10_000
"""Points of one series in one range query; Prometheus itself refuses more than 11,000."""
MAX_SAMPLES = 20_000_000
"""Samples of one query; Prometheus's own default limit is 50 million."""
RETRIES = 3
_OVER_TIME = {
    "last": "last_over_time",
    "avg": "avg_over_time",
    "max": "max_over_time",
    "min": "min_over_time",
}
_NO_BRACKETS = b'[]" \n'


class _Series(msgspec.Struct):
    metric: dict[str, str]
    values: msgspec.Raw = msgspec.Raw(b"[]")


class _Data(msgspec.Struct):
    resultType: str
    result: list[_Series] = []


class _Answer(msgspec.Struct):
    status: str
    data: _Data


class PrometheusSource:
    """Reads series from a Prometheus at ``url``; speaks no other version than ``/api/v1``.

    ``deadline`` is for one request, in seconds. Raises UnreachableError where it does not answer,
    InputError where what answers is no Prometheus.
    """

    def __init__(
        self,
        url: str,
        *,
        title: str = "",
        deadline: float = 30.0,
        span: tuple[float, float] | None = None,
        notes: Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self.title = title or self.url
        self.notes: list[str] = list(notes)
        self.deadline = deadline
        self.seconds_waiting = 0.0
        """Time spent until answers arrived: Prometheus's own."""
        self._span = span
        self._headers = {"Accept": "application/json", **(headers or {})}
        self._families: tuple[str, ...] | None = None
        self._open = _opener(self.url)

    def families(self) -> tuple[str, ...]:
        if self._families is None:
            answer = self._json("/api/v1/label/__name__/values")
            self._families = tuple(sorted(str(name) for name in answer))
        return self._families

    def span(self) -> tuple[float, float] | None:
        if self._span is None:
            self._span = find_span(self)
        return self._span

    def look_between(self, blocks: tuple[float, float] | None) -> None:
        """Find the span of finished blocks (their range is known) and the head together."""
        head = self._json("/api/v1/status/tsdb").get("headStats") or {}
        low, high = float(head.get("minTime", 0)) / 1000, float(head.get("maxTime", 0)) / 1000
        ends = [blocks] if blocks else []
        if 0 < low <= high:
            ends.append((low, high))
        if ends:
            self._span = min(a for a, _ in ends), max(b for _, b in ends)

    def label_sets(self, name: str, start: float, end: float) -> list[dict[str, str]]:
        rows = self._json(
            "/api/v1/series", {"match[]": name, "start": _stamp(start), "end": _stamp(end)}
        )
        return [{k: v for k, v in row.items() if k != "__name__"} for row in rows]

    def samples(self, selector: Selector, start: float, end: float) -> list[Samples]:
        milliseconds = max(round((end - start) * 1000), 1)
        query = {"query": f"{selector}[{milliseconds}ms]", "time": _stamp(end)}
        found = []
        for series in self._matrix("/api/v1/query", query):
            pairs = _pairs(series.values)
            found.append(Samples(_plain(series.metric), pairs[:, 0], pairs[:, 1]))
        return found

    def query_range(
        self, selector: Selector, start: float, end: float, step: float, reduce: Reduce = "last"
    ) -> Grid:
        times = axis(start, end, step)
        expression = f"{_OVER_TIME[reduce]}({selector}[{round(step * 1000)}ms])"
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
            "start": _stamp(part[0]),
            "end": _stamp(part[-1]),
            "step": f"{step:.3f}",
        }
        for series in self._matrix("/api/v1/query_range", query):
            pairs = _pairs(series.values)
            key = tuple(sorted(_plain(series.metric).items()))
            row = rows.setdefault(key, np.full(times.size, np.nan))
            index = np.rint((pairs[:, 0] - times[0]) / step).astype(np.int64)
            row[index] = np.where(np.isnan(pairs[:, 1]), np.inf, pairs[:, 1])

    def _matrix(self, path: str, query: Mapping[str, str]) -> list[_Series]:
        body = self._get(path, query)
        try:
            answer = msgspec.json.decode(body, type=_Answer)
        except msgspec.DecodeError as error:
            raise InputError(f"{self.url}{path} does not answer as Prometheus: {error}") from None
        return answer.data.result

    def _json(self, path: str, query: Mapping[str, str] | None = None) -> Any:
        body = self._get(path, query or {})
        try:
            return json.loads(body)["data"]
        except (ValueError, KeyError, TypeError):
            raise InputError(
                f"{self.url} answers, but not as a Prometheus does; is the address right?"
            ) from None

    def text(self, path: str) -> str:
        """A page as text, such as ``/metrics``; empty where it is not served."""
        try:
            return self._get(path, {}).decode("utf-8", "replace")
        except (UnreachableError, InputError):
            return ""

    def _get(self, path: str, query: Mapping[str, str]) -> bytes:
        url = f"{self.url}{path}"
        if query:
            url += "?" + urllib.parse.urlencode(query)
        request = urllib.request.Request(url, headers=self._headers)
        problem = ""
        for attempt in range(RETRIES):
            if attempt:
                time.sleep(0.2 * 2**attempt)
            started = time.monotonic()
            try:
                with self._open(request, timeout=self.deadline) as answer:
                    return bytes(answer.read())
            except urllib.error.HTTPError as error:
                problem = self._refused(error)
            except TimeoutError:
                raise UnreachableError(self._slow(path)) from None
            except urllib.error.URLError as error:
                if isinstance(error.reason, TimeoutError):
                    raise UnreachableError(self._slow(path)) from None
                problem = str(error.reason)
            except (http.client.HTTPException, ConnectionError, OSError) as error:
                problem = str(error) or type(error).__name__
            finally:
                self.seconds_waiting += time.monotonic() - started
        raise UnreachableError(
            f"{self.url} does not answer: {problem}. Is the address right, and is the Prometheus "
            "of this job running? A finished job's folder can be given instead."
        )

    def _slow(self, path: str) -> str:
        return (
            f"{self.url}{path} gave no answer within {self.deadline:.0f} s; "
            "try a shorter --window or a longer --deadline"
        )

    def _refused(self, error: urllib.error.HTTPError) -> str:
        """A reason to try again, for what may pass; raises for what will not."""
        text = error.read(2000).decode("utf-8", "replace")
        try:
            reason = json.loads(text).get("error", "")
        except (ValueError, AttributeError):
            reason = ""
        if error.code in {404, 405} or (error.code == 400 and not reason):
            raise InputError(
                f"{self.url} answers, but not as a Prometheus does (HTTP {error.code}); "
                "is the address right?"
            ) from None
        if error.code in {401, 403}:
            raise UnreachableError(f"{self.url} refuses us (HTTP {error.code})") from None
        if error.code in {400, 422}:
            raise UnreachableError(f"{self.url}: query failed: {reason or text[:200]}") from None
        return f"HTTP {error.code} {reason or text[:200]}".strip()


def _opener(url: str) -> Callable[..., Any]:
    """How to open ``url``: a proxy of the environment is not asked for this very machine."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise InputError(f"{url} is not the address of a Prometheus: http://HOST:PORT is meant")
    near = parts.hostname == "localhost" or parts.hostname.startswith("127.")
    handlers = [urllib.request.ProxyHandler({})] if near else []
    return urllib.request.build_opener(*handlers).open


def _plain(labels: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if key != "__name__"}


def _stamp(moment: float) -> str:
    return f"{moment:.3f}"


def _pairs(values: msgspec.Raw) -> Floats:
    """``[[t,"v"],...]`` as an (N, 2) array."""
    text = bytes(values).translate(None, _NO_BRACKETS).decode("ascii")
    if not text:
        return np.empty((0, 2))
    return np.fromstring(text, sep=",", dtype=np.float64).reshape(-1, 2)


def find_span(source: PrometheusSource) -> tuple[float, float] | None:
    """First and last sample of a Prometheus, by asking it for ever finer ranges.

    ``/api/v1/status/tsdb`` tells the range of the head block only, and nothing at all of a
    database that holds finished blocks alone.
    """
    names = source.families()
    if not names:
        return None
    now = time.time()
    lowest = re.search(
        r"^prometheus_tsdb_lowest_timestamp_seconds (\S+)$", source.text("/metrics"), re.MULTILINE
    )
    start = float(lowest.group(1)) if lowest else now - 2 * 365 * 86400.0
    end = now + 86400.0
    if not 0 < start < end:
        start = now - 2 * 365 * 86400.0
    probes = _probe_names(names)
    for step in (86400.0, 3600.0, 300.0, 15.0):
        while (end - start) / step > MAX_POINTS:
            step *= 2
        found = _presence(source, probes, start, end, step)
        if found is None:
            return None
        start, end = found[0] - step, found[1]
    return start, end


def _presence(
    source: PrometheusSource, probes: str, start: float, end: float, step: float
) -> tuple[float, float] | None:
    query = {
        "query": f'count(last_over_time({{__name__=~"{probes}"}}[{round(step)}s]))',
        "start": _stamp(start),
        "end": _stamp(end + step),
        "step": f"{step:.3f}",
    }
    found = [_pairs(series.values) for series in source._matrix("/api/v1/query_range", query)]
    times = np.concatenate([pairs[:, 0] for pairs in found]) if found else np.empty(0)
    return (float(times.min()), float(times.max())) if times.size else None


def _probe_names(names: Sequence[str]) -> str:
    wanted = ("up", "hw_scrape_duration_seconds", "hw_procs_running", "tb_step", "train_step",
              "ray_node_mem_used", "hw_gpu_power_watts")  # fmt: skip
    found = [name for name in wanted if name in names]
    return "|".join(found or [re.escape(name) for name in names[:20]])

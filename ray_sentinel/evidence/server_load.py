"""A server's load by its own metrics: requests, tokens, cache.

The names are those that SGLang (``--enable-metrics``; docs.sglang.io, Production Metrics) and vLLM
(docs.vllm.ai, Metrics) serve under ``/metrics``, and those of Ray Serve (docs.ray.io, Monitor Your
Application) among the metrics of each Ray node, in Prometheus's text format.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.errors import InputError

if TYPE_CHECKING:
    from prometheus_client.samples import Sample

RUNNING = frozenset({"sglang:num_running_reqs", "vllm:num_requests_running"})
WAITING = frozenset({"sglang:num_queue_reqs", "vllm:num_requests_waiting"})
FINISHED = frozenset({"sglang:num_requests_total", "vllm:request_success_total"})
TOKENS = {
    "sglang:prompt_tokens_total": "prompt",
    "vllm:prompt_tokens_total": "prompt",
    "sglang:generation_tokens_total": "generation",
    "vllm:generation_tokens_total": "generation",
    "sglang:realtime_tokens_total": "realtime",
}
"""Metric → kind of tokens. SGLang counts prompt and generation when a request ends, ``realtime`` as
it goes on."""
CACHE = frozenset({"sglang:token_usage", "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"})
THROUGHPUT = frozenset({"sglang:gen_throughput"})
OF_SERVE = {
    "ray_serve_replica_processing_queries": "running",
    "ray_serve_deployment_queued_queries": "waiting",
    "ray_serve_deployment_request_counter_total": "finished",
    "ray_serve_deployment_error_counter_total": "finished",
}
"""Metric → field of ``ServerLoad``."""
LATENCIES = "ray_serve_deployment_processing_latency_ms_bucket"
SERVE = "serve-"
"""What the names of Ray Serve's deployments begin with, where they are shown as jobs:
``serve-APPLICATION-DEPLOYMENT``."""
# The series in which an agent tells the load.
REQUESTS_METRIC = "server_requests"
FINISHED_METRIC = "server_requests_finished_total"
LONGEST_METRIC = "server_request_longest_seconds"
MOVING = (
    REQUESTS_METRIC,
    FINISHED_METRIC,
    "server_tokens_total",
    "server_kv_cache_ratio",
    "server_tokens_per_second",
)
"""Series of which at least one changes while a server works."""
_KNOWN = frozenset({*RUNNING, *WAITING, *FINISHED, *TOKENS, *CACHE, *THROUGHPUT})
_LINE = re.compile(rf"^(?:{'|'.join(sorted(_KNOWN))})[ {{].*$", re.MULTILINE)
_SERVE_LINE = re.compile(rf"^(?:{'|'.join(sorted((*OF_SERVE, LATENCIES)))})[ {{].*$", re.MULTILINE)
_INSIDE = ("pp_rank", "tp_rank", "moe_ep_rank")
"""Labels of ranks that work on the same requests: the first of each replica speaks for all. With
data-parallel attention they are numbered across all replicas, not from 0 in each."""


class ServerLoad(msgspec.Struct, frozen=True, kw_only=True):
    """All replicas behind one endpoint together. None: not reported."""

    running: float | None = None
    """Number of requests that are being worked on."""
    waiting: float | None = None
    """Number of requests that wait to be worked on."""
    finished: float | None = None
    """Number of requests answered since the server started."""
    longest: float | None = None
    """Seconds that no request exceeded, as far as the buckets of a histogram show."""
    tokens: dict[str, float] = {}
    """Kind of tokens → how many were counted since the server started."""
    cache_ratio: float | None = None
    """The used share of the key-value cache that is fullest, from 0 to 1."""
    tokens_per_second: float | None = None


def parse_load(text: str) -> ServerLoad:
    """The load of an engine. Raises InputError for a text that contains none of the known figures,
    or cannot be parsed."""
    replicas: dict[tuple[str, str], list[Sample]] = {}
    for sample in _samples(_LINE, text):
        # SGLang repeats some figures for each priority.
        if not sample.labels.get("priority"):
            replicas.setdefault((sample.name, sample.labels.get("dp_rank", "")), []).append(sample)
    values: dict[str, list[float]] = {}
    for (name, _), told in replicas.items():
        first = min(map(_inside, told))
        values.setdefault(name, []).extend(s.value for s in told if _inside(s) == first)
    if not values:
        raise InputError("it serves no metrics of SGLang or vLLM (SGLang: --enable-metrics)")
    tokens: dict[str, float] = {}
    for name, kind in TOKENS.items():
        if name in values:
            tokens[kind] = tokens.get(kind, 0.0) + sum(values[name])
    cache = [value for name in CACHE for value in values.get(name, ())]
    return ServerLoad(
        running=_sum(values, RUNNING),
        waiting=_sum(values, WAITING),
        finished=_sum(values, FINISHED),
        tokens=tokens,
        cache_ratio=max(cache, default=None),
        tokens_per_second=_sum(values, THROUGHPUT),
    )


def parse_serve(text: str) -> dict[str, ServerLoad]:
    """The load of every Ray Serve deployment in a node's metrics, by ``serve-APP-DEPLOYMENT``.

    Raises InputError if they cannot be parsed.
    """
    counts: dict[str, dict[str, float]] = {}
    buckets: dict[str, dict[tuple[tuple[str, str], ...], dict[float, float]]] = {}
    for sample in _samples(_SERVE_LINE, text):
        labels = sample.labels
        name = f"{SERVE}{labels.get('application', '')}-{labels.get('deployment', '')}"
        count = counts.setdefault(name, {})
        if sample.name == LATENCIES:
            series = tuple(sorted(label for label in labels.items() if label[0] != "le"))
            bounds = buckets.setdefault(name, {}).setdefault(series, {})
            bounds[_bound(labels.get("le", ""))] = sample.value
        else:
            told = OF_SERVE[sample.name]
            count[told] = count.get(told, 0.0) + sample.value
    for name, histograms in buckets.items():
        longest = max(map(_highest, histograms.values()))
        if math.isfinite(longest):
            counts[name]["longest"] = longest / 1000.0
    return {name: msgspec.convert(count, ServerLoad) for name, count in counts.items()}


def _bound(le: str) -> float:
    try:
        return float(le)
    except ValueError:
        return math.inf


def _highest(bounds: dict[float, float]) -> float:
    """The lowest bound of a histogram that none of its values exceeds."""
    all_of_them = max(bounds.values())
    return min(bound for bound, count in bounds.items() if count == all_of_them)


def _samples(wanted: re.Pattern[str], text: str) -> Iterator[Sample]:
    """The finite samples of the lines that are wanted. Raises InputError."""
    from prometheus_client.parser import text_string_to_metric_families

    for line in wanted.findall(text):
        try:
            families = list(text_string_to_metric_families(line + "\n"))
        except ValueError as error:
            raise InputError(f"its metrics cannot be read: {error}") from None
        for family in families:
            yield from (sample for sample in family.samples if math.isfinite(sample.value))


def _inside(sample: Sample) -> tuple[int, ...]:
    ranks = (sample.labels.get(label, "") for label in _INSIDE)
    return tuple(int(rank) if rank.isdecimal() and len(rank) < 10 else 0 for rank in ranks)


def _sum(values: dict[str, list[float]], names: Iterable[str]) -> float | None:
    found = [value for name in names for value in values.get(name, ())]
    return sum(found) if found else None

"""Why a node of Ray has not started calls that it has room for, as its raylet says.

Ray's control store lists such a call in one state, whatever it waits for. The raylet counts those
calls by reason, in the gauge ``scheduler_unscheduleable_tasks`` (Ray's ``metric_defs.cc``), on the
page of metrics that Ray serves on each node. What is read there is up to ten seconds old
(``metrics_report_interval_ms``).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from prometheus_client.parser import text_string_to_metric_families

from ray_sentinel.bounded import Bounded
from ray_sentinel.errors import UnreachableError
from ray_sentinel.http.client import get

ANSWER_SECONDS = 1.5
"""Seconds that all nodes together have to answer."""
MOST_NODES = 8
"""Most nodes that are asked in one look."""
MOST_BYTES = 16 << 20
"""Most bytes of one page."""
_GAUGE = "ray_scheduler_unscheduleable_tasks"
_FOR_MEMORY = "WaitingForPlasmaMemory"


def short_of_memory(pages: Mapping[str, str]) -> tuple[str, ...]:
    """The nodes whose object store has no room for the arguments of a call that they would start.
    ``pages``: where each node serves its metrics, by node id; those that do not answer are left
    out."""
    asked: Bounded[str, bytes] = Bounded(ANSWER_SECONDS, MOST_NODES)
    told, _ = asked.run({node: partial(_page, url) for node, url in pages.items()})
    return tuple(node for node, page in told.items() if unstarted(page.decode("utf-8", "replace")))


def _page(url: str) -> bytes:
    try:
        return get(url, seconds=ANSWER_SECONDS, most_bytes=MOST_BYTES)
    except UnreachableError as error:
        raise OSError(str(error)) from error


def unstarted(page: str) -> float:
    """How many calls wait for room in the object store, according to a node's page of metrics; 0 if
    it does not say.

    >>> unstarted('ray_scheduler_unscheduleable_tasks{Reason="WaitingForPlasmaMemory"} 2.0')
    2.0
    """
    lines = [line for line in page.splitlines() if line.startswith(_GAUGE) and _FOR_MEMORY in line]
    try:
        families = list(text_string_to_metric_families("\n".join(lines) + "\n"))
    except ValueError:
        return 0.0
    samples = (sample for family in families for sample in family.samples)
    return sum(one.value for one in samples if one.labels.get("Reason") == _FOR_MEMORY)

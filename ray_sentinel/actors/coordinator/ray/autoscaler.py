"""What Ray's autoscaler reports about nodes that it adds, in either of its versions.

Version 1 writes its status, in JSON, into the control store's table of keys and values; so does the
monitor that only watches, where nobody configured an autoscaler. Version 2 reports its state to the
control store, which hands it on (``AutoscalingState`` in ``autoscaler.proto``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import msgspec

from ray_sentinel.actors.coordinator.ray.replies import MAX_NODES, MOST_BUNDLES, amounts
from ray_sentinel.masking import mask
from ray_sentinel.model.placement import NO_AUTOSCALER
from ray_sentinel.text import one_line

MOST_STATUS = 1 << 20
"""Most bytes of the status of version 1; a longer one is not read."""
MOST_BEYOND = 100
"""Most requests to report that no kind of node can hold."""
MOST_REASON = 200
"""Most characters of a reason."""
_GONE = 2
"""The value of ``NodeStatus.DEAD``."""


class AutoscalerView(msgspec.Struct, frozen=True, kw_only=True):
    """What the autoscaler does."""

    says: str = ""
    """Why no node is added; empty where that is not known."""
    beyond: tuple[tuple[dict[str, float], ...], ...] = ()
    """The requests that no node which it may add could hold, each with its bundles."""


def status_of(status: bytes) -> str:
    """Why no node is added, from the status that version 1 writes.

    If nobody configured an autoscaler, the monitor only watches, and each node is a type of its own
    that is named after it. Version 2 writes no such status, so its absence proves nothing.
    """
    if len(status) > MOST_STATUS:
        return ""
    try:
        report = msgspec.json.decode(status, type=_Status).autoscaler_report
    except msgspec.DecodeError:
        return ""
    types = report.node_type_mapping
    if types and all(kind == f"node_{node}" for node, kind in types.items()):
        return NO_AUTOSCALER
    launches = sum(report.pending_launches.values()) + len(report.pending_nodes)
    return _describe(launches, len(report.failed_nodes))


def cluster_status_of(reply: Any) -> AutoscalerView | None:
    """``status_of`` for version 2, from a ``GetClusterStatusReply``; None if it has reported
    nothing.

    The nodes of a cluster that nobody scales have no type.
    """
    if not reply.HasField("autoscaling_state"):
        return None
    state = reply.autoscaling_state
    requests = islice(state.pending_instance_requests, MAX_NODES)
    launches = sum(max(0, one.count) for one in requests) + len(state.pending_instances)
    failed = list(islice(state.failed_instance_requests, MAX_NODES))
    last = max(failed, key=lambda one: one.failed_ts, default=None)
    says = _describe(
        launches, sum(max(1, one.count) for one in failed), last.reason if last else ""
    )
    nodes = [n for n in reply.cluster_resource_state.node_states[:MAX_NODES] if n.status != _GONE]
    if not says and nodes and not any(node.ray_node_type_name for node in nodes):
        says = NO_AUTOSCALER
    return AutoscalerView(says=says, beyond=tuple(islice(_beyond(state), MOST_BEYOND)))


def _beyond(state: Any) -> Iterator[tuple[dict[str, float], ...]]:
    for one in state.infeasible_resource_requests:
        yield _bundles([one])
    for gang in state.infeasible_gang_resource_requests:
        yield _bundles(gang.requests)


def _bundles(requests: Iterable[Any]) -> tuple[dict[str, float], ...]:
    return tuple(amounts(one.resources_bundle) for one in islice(requests, MOST_BUNDLES))


def _describe(launches: int, failed: int, reason: str = "") -> str:
    if launches:
        says = f"the autoscaler waits for {launches} new node{'s' * (launches != 1)}"
        # If there is a reason, it has tried again.
        return says if not reason else f"{says}, and {failed} failed before{_because(reason)}"
    if failed:
        return f"{failed} node{'s' * (failed != 1)} of the autoscaler failed{_because(reason)}"
    return ""


def _because(reason: str) -> str:
    return f" ({one_line(mask(reason), MOST_REASON)})" if reason else ""


class _Report(msgspec.Struct, frozen=True):
    node_type_mapping: dict[str, str] = {}
    pending_launches: dict[str, int] = {}
    pending_nodes: tuple[Any, ...] = ()
    failed_nodes: tuple[Any, ...] = ()


class _Status(msgspec.Struct, frozen=True):
    autoscaler_report: _Report = _Report()

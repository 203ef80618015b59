"""Which nodes may be left alone, so that an autoscaler can take them away.

A detached actor keeps a node from scaling down even if it takes no resources. A node is left when
it has had no rank for ``agent.idle_release_seconds`` and nothing of Ray runs on it, and watched
again as soon as something does. Where nothing scales, no node is ever left.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path

from ray_sentinel.progress.process_memory import memory_files

Resources = Mapping[str, Mapping[str, float]]
"""Amounts by resource, by node id."""

_NOT_WORK = ("node:", "bundle_group", "object_store_memory")
_EPSILON = 1e-6


def autoscales(environ: Mapping[str, str] = os.environ, proc: Path = Path("/proc")) -> bool:
    """Whether this cluster has an autoscaler, as seen from its head.

    Kubernetes runs it in another container; elsewhere Ray's monitor was given its configuration.
    """
    if "KUBERNETES_SERVICE_HOST" in environ:
        return True
    pids = (int(folder.name) for folder in proc.iterdir() if folder.name.isdigit())
    lines = memory_files(pids, "cmdline", proc)
    return any(b"monitor.py" in line and b"--autoscaling-config" in line for line in lines.values())


def unused_now() -> frozenset[str]:
    """The nodes on which nothing runs now; none where this version of Ray does not tell."""
    from ray._private import state

    try:
        return unused(state.total_resources_per_node(), state.available_resources_per_node())
    except AttributeError:
        return frozenset()


def unused(total: Resources, available: Resources) -> frozenset[str]:
    """The nodes on which nothing of Ray takes any resource.

    >>> sorted(unused({"a": {"CPU": 2}, "b": {"CPU": 2}}, {"a": {"CPU": 2}, "b": {"CPU": 1}}))
    ['a']
    """
    return frozenset(
        node_id
        for node_id, amounts in total.items()
        if all(
            available.get(node_id, {}).get(name, 0.0) >= amount - _EPSILON
            for name, amount in amounts.items()
            if not name.startswith(_NOT_WORK)
        )
    )


def to_release(
    idle_seconds: Mapping[str, float],
    free: Collection[str],
    heads: Collection[str],
    limit: float,
) -> frozenset[str]:
    """Nodes to leave: ``idle_seconds`` since each had a rank; the head stays watched."""
    if limit <= 0:
        return frozenset()
    return frozenset(
        node_id
        for node_id, seconds in idle_seconds.items()
        if seconds > limit and node_id in free and node_id not in heads
    )

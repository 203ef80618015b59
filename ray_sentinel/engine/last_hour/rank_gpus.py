"""Which GPUs a rank has, and what each rank's GPU does now.

Launchers give a process one GPU, or all of its node's, of which it takes the one at its local rank
(``cuda:LOCAL_RANK``).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from statistics import fmean

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.telemetry.gpu_map import INFO, newest_values
from ray_sentinel.engine.telemetry.gpus import POWER, UTILISATION
from ray_sentinel.engine.telemetry.series import NodeTelemetry
from ray_sentinel.model.gpus import GpuQuantity, HostRankGpus, RankGpus
from ray_sentinel.model.identity import Rank

MOST_GPUS = 4
"""Most GPUs of one rank that are told apart."""


def gpus_of(rank: Rank, node: NodeTelemetry) -> tuple[tuple[str, ...], bool]:
    """The indices of the rank's GPUs among those of its node, and whether they are assumed."""
    there = {
        dict(key).get("gpu", "")
        for name in (INFO, UTILISATION, POWER)
        for key in node.of_name(name)
    }
    return _chosen(rank, there, _indices(node) if rank.gpus else {})


def _chosen(
    rank: Rank, there: Collection[str], indices: Mapping[str, str]
) -> tuple[tuple[str, ...], bool]:
    """``there`` are the GPUs of the node, ``indices`` theirs by their UUIDs."""
    given = tuple(indices.get(gpu, gpu) for gpu in rank.gpus)
    if len(given) == 1:
        return tuple(gpu for gpu in given if gpu in there), False
    place = rank.local_rank
    if place is None:
        return tuple(gpu for gpu in given if gpu in there)[:MOST_GPUS], False
    mine = (given[place] if place < len(given) else "") if given else str(place)
    return ((mine,) if mine in there else ()), True


def _indices(node: NodeTelemetry) -> dict[str, str]:
    """The index of each GPU by its UUID."""
    found = {}
    for name in (INFO, UTILISATION, POWER):
        for key in node.of_name(name):
            labels = dict(key)
            if "uuid" in labels:
                found[labels["uuid"]] = labels.get("gpu", "")
    return found


def rank_gpus(
    view: ClusterView, quantity: GpuQuantity, now: float, lock: AbstractContextManager[object]
) -> RankGpus:
    """The newest value of each rank's GPU, the mean where a rank has several. ``lock`` is taken for
    one node at a time, so that whoever changes the values hardly waits."""
    by_node: dict[str, list[Rank]] = {}
    with lock:
        for job in view.jobs.values():
            for one in job.present:
                by_node.setdefault(one.node, []).append(one.rank)
    hosts = []
    for node_id, ranks in by_node.items():
        with lock:
            host, node = view.host_of(node_id), view.telemetry.of(node_id)
            told = newest_values(node, quantity)
            found = {gpu: one for gpu, one in told.items() if math.isfinite(one[0])}
            unknown = found and any(gpu not in found for rank in ranks for gpu in rank.gpus)
            indices = _indices(node) if unknown else {}
        if found:
            hosts.append(_of_host(host, ranks, found, indices, now))
    return RankGpus(quantity=quantity, hosts=tuple(hosts))


def _of_host(
    host: str,
    ranks: list[Rank],
    found: Mapping[str, tuple[float, float]],
    indices: Mapping[str, str],
    now: float,
) -> HostRankGpus:
    pids, values, ages = [], [], []
    for rank in ranks:
        gpus, _ = _chosen(rank, found.keys(), indices)
        if not gpus:
            continue
        pids.append(rank.process.pid)
        values.append(fmean(found[gpu][0] for gpu in gpus))
        ages.append(max(0.0, now - min(found[gpu][1] for gpu in gpus)))
    return HostRankGpus(host=host, pids=tuple(pids), values=tuple(values), ages=tuple(ages))

"""The series of one rank: its steps, and what its node reported of its CPUs and of the rank's GPU.

Steps come from what agents send for the history and, for the last ones, from the rank's own record;
everything else from the series that the rules read. Half an hour of these is kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import pairwise

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.last_hour.rank_gpus import gpus_of
from ray_sentinel.engine.ranks import RankView
from ray_sentinel.engine.telemetry.gpus import POWER, UTILISATION
from ray_sentinel.engine.telemetry.series import KEPT_SECONDS, NodeTelemetry, TelemetrySeries
from ray_sentinel.model.last_hour import (
    PlottedPoint,
    RankAsked,
    RankPlot,
    RankSeries,
    SeriesUnit,
)

POINT_SECONDS = 10.0
"""A plot has one point for so long: the mean of what came."""
STEP, STEP_SECONDS = "train_step", "train_step_seconds"
CPU = "hw_cpu_seconds_total"
RESTING = frozenset({"idle", "iowait"})
"""Modes of a CPU that does nothing."""
MEMORY, MEMORY_WHOLE = "hw_gpu_vram_used_bytes", "hw_gpu_vram_total_bytes"

_Sample = tuple[float, float]


def find_rank(view: ClusterView, asked: RankAsked) -> RankView | None:
    """The rank that was asked for. If no process is at its place, or none is named, that which was
    seen last of those with its number."""
    found = view.jobs.get((asked.job, asked.attempt))
    alike = [one for one in found.ranks.values() if one.rank.id.rank == asked.rank] if found else []
    places = ((one, f"{view.host_of(one.node)} {one.rank.process.pid}") for one in alike)
    there = [one for one, place in places if place == asked.place]
    return max(there or alike, key=lambda one: (one.alive, one.seen_at), default=None)


def rank_series(view: ClusterView, rank: RankView, now: float) -> RankSeries:
    """The series kept for a rank. Times are on the coordinator's clock."""
    begin = now - KEPT_SECONDS
    node = view.telemetry.of(rank.node)
    gpus, assumed = gpus_of(rank.rank, node)
    plots = (*_steps(rank, node), *_cpu(node), *(p for gpu in gpus for p in _of_gpu(node, gpu)))
    drawn = ((name, unit, _points(samples, begin), whole) for name, unit, samples, whole in plots)
    return RankSeries(
        begin=begin,
        end=now,
        plots=tuple(
            RankPlot(name=name, unit=unit, points=points, whole=whole)
            for name, unit, points, whole in drawn
            if points
        ),
        gpus=gpus,
        assumed=assumed and bool(gpus),
    )


_Plot = tuple[str, SeriesUnit, Iterable[_Sample], float | None]


def _steps(rank: RankView, node: NodeTelemetry) -> Iterator[_Plot]:
    labels = {"job": rank.rank.id.job, "rank": str(rank.rank.id.rank)}
    progress = rank.snapshot.progress
    told = _samples(node, STEP_SECONDS, labels)
    if progress is not None and progress.step_ended_at is not None:
        ended = rank.seen_at - (rank.node_time - progress.step_ended_at)
        last = []
        for seconds in reversed(progress.recent_step_seconds):
            last.append((ended, seconds))
            ended -= seconds
        told = [sample for sample in told if not last or sample[0] < last[-1][0]] + last[::-1]
    yield "time per step", "seconds", told, None
    yield "step", "steps", _samples(node, STEP, labels), None


def _cpu(node: NodeTelemetry) -> Iterator[_Plot]:
    modes = {
        dict(key).get("mode", ""): dict(series.samples) for key, series in node.of_name(CPU).items()
    }
    if not RESTING & modes.keys():
        return
    times = sorted(set.intersection(*(set(samples) for samples in modes.values())))
    used = []
    for before, after in pairwise(times):
        spent = {mode: samples[after] - samples[before] for mode, samples in modes.items()}
        whole = sum(spent.values())
        if whole > 0 and min(spent.values()) >= 0:
            resting = sum(spent.get(mode, 0.0) for mode in RESTING)
            used.append((after, 1.0 - resting / whole))
    yield "CPUs of its node", "ratio", used, None


def _of_gpu(node: NodeTelemetry, gpu: str) -> Iterator[_Plot]:
    labels = {"gpu": gpu}
    yield f"utilisation of GPU {gpu}", "ratio", _samples(node, UTILISATION, labels), None
    yield f"power of GPU {gpu}", "watts", _samples(node, POWER, labels), None
    whole = _samples(node, MEMORY_WHOLE, labels)
    most = whole[-1][1] if whole else None
    yield f"memory of GPU {gpu}", "bytes", _samples(node, MEMORY, labels), most


def _samples(node: NodeTelemetry, name: str, labels: dict[str, str]) -> list[_Sample]:
    """The samples of the latest series with these labels: a new driver may change the other
    labels."""
    wanted = labels.items()
    alike: list[TelemetrySeries] = [
        series for key, series in node.of_name(name).items() if wanted <= dict(key).items()
    ]
    found = max(alike, key=lambda series: series.at, default=None)
    return found.samples if found is not None else []


def _points(samples: Iterable[_Sample], begin: float) -> tuple[PlottedPoint, ...]:
    places: dict[int, list[_Sample]] = {}
    for at, value in samples:
        if at >= begin and math.isfinite(value):
            places.setdefault(int((at - begin) / POINT_SECONDS), []).append((at - begin, value))
    return tuple(
        (round(sum(at for at, _ in some) / len(some), 1), sum(v for _, v in some) / len(some))
        for _, some in sorted(places.items())
    )

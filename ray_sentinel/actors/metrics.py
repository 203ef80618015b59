"""The metrics of an agent itself: ``train_*`` and ``ray_sentinel_*``. Pure.

Those of the coordinator are in ``coordinator/metrics.py``, because they import the engine, which no
agent needs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ray_sentinel.actors.names import PROTOCOL
from ray_sentinel.evidence.server_load import MOVING
from ray_sentinel.model.exposition import clean
from ray_sentinel.model.metrics import Family, Metric, Sample, families_of
from ray_sentinel.model.progress import Exit, RankSnapshot
from ray_sentinel.model.samples import SeriesKey
from ray_sentinel.version import __version__

RANK = ("job", "rank")

STEP = Metric("train_step", "gauge", "The last step that the rank has ended.", RANK)
STEP_SECONDS = Metric("train_step_seconds", "gauge", "Wall time of the rank's last step.", RANK)
STEP_AGE = Metric(
    "train_step_age_seconds", "gauge", "Time since the rank's last step has ended.", RANK
)
PHASE = Metric("train_phase", "gauge", "The phase that the rank is in: 1.", (*RANK, "phase"))
ALIVE = Metric(
    "train_rank_alive", "gauge", "1 while the rank's process is there, 0 once it has ended.", RANK
)
WORLD = Metric("train_world_size", "gauge", "How many ranks the job has.", ("job",))
SCALAR = Metric(
    "train_scalar", "gauge", "A value that the training passed to step().", (*RANK, "name")
)
BUILD = Metric(
    "ray_sentinel_build_info", "gauge", "The version that runs: 1.", ("version", "protocol")
)
MEMORY = Metric("ray_sentinel_memory_bytes", "gauge", "Resident memory.", ("process",))
MEMORY_LIMIT = Metric(
    "ray_sentinel_memory_limit_bytes", "gauge", "What it should take at most.", ("process",)
)
REPORT_SECONDS = Metric(
    "ray_sentinel_report_seconds",
    "gauge",
    "Wall time of the agent's last report to the coordinator, with its answer.",
)
LOST = Metric(
    "ray_sentinel_agent_lost_total",
    "counter",
    "Exits and events that the agent had no room for while no coordinator took them.",
    ("what",),
)
CAPTURES = Metric(
    "ray_sentinel_captures_total", "counter", "Runs of a capturing tool.", ("tool", "outcome")
)
CAPTURE_SECONDS = Metric(
    "ray_sentinel_capture_seconds", "gauge", "Wall time of this node's last capture."
)

KEY_SERIES = (
    *MOVING,
    "hw_gpu_info",
    "hw_gpu_utilization_ratio",
    "hw_gpu_power_watts",
    "hw_gpu_temperature_celsius",
    "hw_gpu_clock_mhz",
    "hw_gpu_vram_used_bytes",
    "hw_gpu_vram_total_bytes",
    "hw_gpu_throttle_reason",
    "hw_gpu_xid_errors_total",
    "hw_gpu_ecc_uncorrected_total",
    "hw_gpu_ras_umc_ue_total",
    "hw_gpu_ras_xgmi_ue_total",
    "hw_gpu_ras_xgmi_ce_total",
    "hw_gpu_ras_gfx_ue_total",
    "hw_gpu_ras_mmhub_ue_total",
    "hw_gpu_ras_sdma_ue_total",
    "hw_gpu_pcie_fatal_total",
    "hw_gpu_pcie_nonfatal_total",
    "hw_procs_running",
    "hw_procs_blocked",
    "hw_oom_kills_total",
    "hw_cgroup_oom_kills_total",
    "hw_load1",
    "hw_mem_available_bytes",
    "hw_mem_total_bytes",
    "hw_mem_pressure_full_pct",
    "hw_io_pressure_full_pct",
    "hw_dstate_processes",
    "hw_dmesg_errors_total",
    "hw_tcp_retransmits_total",
    "hw_net_tx_bytes_total",
    "hw_rdma_port_state",
    "hw_rdma_tx_bytes_total",
    "hw_rdma_tx_retx_pkts_total",
    "hw_rdma_tx_ack_timeout_total",
    "hw_rdma_req_tx_retry_excd_err_total",
    "hw_rdma_rx_cnp_pkts_total",
    "hw_disk_free_bytes",
    "hw_disk_total_bytes",
    "hw_gpu_nvlink_errors_total",
)
"""The series that the agent sends to the coordinator, for the rules and the embedded history. Where
a node has more than ``MOST_KEYS``, the last ones in this order are cut off."""
_KEY_ORDER = {name: place for place, name in enumerate(KEY_SERIES)}
MOST_KEYS = 400
"""Most key series of one node."""
HISTORY = ("hw_", "train_", "tb_", "ray_cluster_", "server_")
"""Beginnings of the names of the series that the embedded history takes."""


def train_families(
    ranks: Iterable[RankSnapshot], ended: Iterable[Exit], now: float
) -> tuple[Family, ...]:
    """``train_*`` of this node's ranks; ``now`` is this node's clock.

    Of several processes of one rank (an older attempt that lingers) the latest is served. A rank in
    ``ended`` that has no process any more is served as ``train_rank_alive`` 0.
    """
    latest: dict[tuple[str, int], RankSnapshot] = {}
    for found in ranks:
        key = (found.rank.id.job, found.rank.id.rank)
        if key not in latest or _age_order(found) > _age_order(latest[key]):
            latest[key] = found
    gone = {(exit.rank.id.job, exit.rank.id.rank) for exit in ended} - latest.keys()
    # Of a rank that was found from outside the size may not be known.
    sizes = ((found.rank.id.job, found.rank.world_size) for found in latest.values())
    worlds = {job: size for job, size in sizes if size is not None}
    return families_of(
        [
            *(row for found in latest.values() for row in _rank_rows(found, now)),
            *((ALIVE, 0, job, str(rank)) for job, rank in sorted(gone)),
            *((WORLD, size, job) for job, size in worlds.items()),
        ]
    )


def _age_order(found: RankSnapshot) -> tuple[int, bool, int]:
    return found.rank.id.attempt, found.progress is not None, found.rank.process.start


def _rank_rows(found: RankSnapshot, now: float) -> Iterator[tuple[Any, ...]]:
    rank = found.rank.id.job, str(found.rank.id.rank)
    yield ALIVE, 1, *rank
    progress = found.progress
    if progress is None:
        return
    yield STEP, progress.step, *rank
    yield STEP_SECONDS, progress.step_seconds, *rank
    if progress.step_ended_at is not None:
        yield STEP_AGE, max(0.0, now - progress.step_ended_at), *rank
    if progress.phase:
        yield PHASE, 1, *rank, progress.phase
    for name, value in progress.scalars.items():
        yield SCALAR, value, *rank, name


def agent_families(
    memory_bytes: int,
    memory_limit: int,
    report_seconds: float | None,
    lost: Mapping[str, int],
    captures: Mapping[tuple[str, str], int],
    capture_seconds: float | None,
) -> tuple[Family, ...]:
    """What an agent is, and what it costs to watch its node. ``report_seconds`` is as of
    ``REPORT_SECONDS``; ``captures`` are this node's, by (tool, outcome), ``capture_seconds`` is how
    long the last took. None before the first."""
    return families_of(
        [
            (BUILD, 1, __version__, str(PROTOCOL)),
            (MEMORY, memory_bytes, "agent"),
            (MEMORY_LIMIT, memory_limit, "agent"),
            *((LOST, count, what) for what, count in sorted(lost.items())),
            (REPORT_SECONDS, report_seconds),
            *((CAPTURES, count, *how) for how, count in sorted(captures.items())),
            (CAPTURE_SECONDS, capture_seconds),
        ]
    )


def key_samples(families: Iterable[Family]) -> dict[SeriesKey, float]:
    """The current key series, at most ``MOST_KEYS``.

    >>> load = Metric("hw_load1", "gauge", "")
    >>> key_samples([Family(load, (load(0.5),))])
    {SeriesKey(name='hw_load1', labels=()): 0.5}
    """
    found: dict[SeriesKey, float] = {}
    known = [family for family in families if family.metric.name in _KEY_ORDER]
    for family in sorted(known, key=lambda family: _KEY_ORDER[family.metric.name]):
        for sample in family.samples:
            if len(found) >= MOST_KEYS:
                return found
            if sample.timestamp is None and math.isfinite(sample.value):
                found[_series_key(sample)] = sample.value
    return found


def history_samples(families: Iterable[Family], most: int) -> dict[SeriesKey, float]:
    """The current series worth keeping: the key series first, then families of few series before
    families of many (a node may have hundreds of network devices)."""
    known = [family for family in families if family.metric.name.startswith(HISTORY)]
    known.sort(key=lambda family: (family.metric.name not in KEY_SERIES, len(family.samples)))
    found: dict[SeriesKey, float] = {}
    for family in known:
        for sample in family.samples:
            if len(found) >= most:
                return found
            if sample.timestamp is None:
                found[_series_key(sample)] = sample.value
    return found


def _series_key(sample: Sample) -> SeriesKey:
    """The key, restricted to characters that UTF-8 can represent."""
    return SeriesKey(sample.name, tuple((name, clean(value)) for name, value in sample.labels))

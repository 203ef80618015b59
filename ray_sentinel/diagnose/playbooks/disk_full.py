"""A file system that ran full: what is written to it fails, a checkpoint first of all."""

from __future__ import annotations

import numpy as np

from ray_sentinel.diagnose import stop as stops
from ray_sentinel.diagnose import wording
from ray_sentinel.diagnose.anomaly import Anomaly
from ray_sentinel.diagnose.case import JobCase, everywhere
from ray_sentinel.diagnose.panel import listed
from ray_sentinel.model.diagnosis import CauseLocation, Diagnosis
from ray_sentinel.model.thresholds import DISK_FULL, DISK_FULL_BYTES

NAME = "disk-full"
ANALYSIS = "disk-full"
ALIASES: tuple[str, ...] = ("disk", "storage-full", "9")
TITLE = "Full file system"
SLOWING: frozenset[str] = frozenset()


def applies(case: JobCase) -> float:
    """Whether the room on any file system is recorded."""
    return 0.5 if case.view.has("io.disk_free") and case.view.has("io.disk_total") else 0.0


def run(case: JobCase) -> Diagnosis:
    """The file systems that came to have no room, and what the job did then."""
    found = _full(case)
    if not found:
        text = "Every file system that is watched had room throughout."
        return wording.plain("not-this", "none", text, 0.85)
    first = found[0]
    stop = stops.ended_by(case, first.at)
    ended = stop is not None
    hosts = sorted({one.host for one in found if one.unit == first.unit})
    shared = everywhere(len(hosts), len(case.hosts))
    where = f"{first.unit} on {f'all {len(hosts)} hosts' if shared else listed(hosts)}"
    room = first.text.partition(": ")[2]
    then = "; the job stopped after it" if ended else ". The job went on meanwhile"
    links = wording.linked(found[:6])
    if stop is not None:
        links.append(wording.job_stops(case, stop, stop.at))
    return Diagnosis(
        outcome="found",
        cause="disk-full",
        root_cause=f"No room is left on {where} ({room}){then}.",
        confidence=0.8 if ended else 0.7,
        weight=0.75 if ended else 0.4,
        onset=first.at,
        ended_job=ended,
        culprits=()
        if shared
        else tuple(CauseLocation(host=one.host, reason=one.text) for one in found),
        chain=tuple(links),
        evidence=tuple(one.fact() for one in found[:12]),
        anomalies=tuple(one.text for one in found),
        next_steps=(
            f"Make room on {first.unit}: old checkpoints, core dumps, caches, logs.",
            "Look whether the last checkpoint is complete before the job is restarted from it.",
        ),
    )


def _full(case: JobCase) -> tuple[Anomaly, ...]:
    """File systems that ran full while the job was watched, in order of time; one that was full
    from the beginning is nobody's doing."""
    free, total = case.view.panel("io.disk_free"), case.view.panel("io.disk_total")
    sizes = {(row.host, row.unit): values
             for row, values in zip(total.rows, total.values, strict=True)}  # fmt: skip
    found = []
    for row, values in zip(free.rows, free.values, strict=True):
        whole = sizes.get((row.host, row.unit))
        if whole is None:
            continue
        with np.errstate(invalid="ignore", divide="ignore"):
            share = values / whole
            full = (share < DISK_FULL.limit) & (values < DISK_FULL_BYTES.limit)
        known = np.flatnonzero(np.isfinite(share))
        at = np.flatnonzero(full)
        if not at.size or at[0] == known[0]:
            continue
        first = int(at[0])
        least = float(np.nanmin(values[full]))
        text = (
            f"{row.unit} of {row.host}: {wording.size(least)} left of {wording.size(whole[first])}"
        )
        anomaly = Anomaly.of_row(free, row, "host.disk-full", text, first, least)
        found.append(anomaly)
    return tuple(sorted(found, key=lambda one: one.at))

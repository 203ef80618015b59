"""The quality of a source: what it holds, what is missing, and which data are not reliable.

Ghost data: an exporter whose collection loop hangs may go on serving its last file, and Prometheus
gives the dead values fresh times. The exporter's own cycle time then stands still too, which real
measurements never do; a GPU at work never holds the same wattage for minutes.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ray_sentinel.diagnose import stats
from ray_sentinel.diagnose.panel import SeriesPanel
from ray_sentinel.diagnose.quantities import FAMILY_GROUPS, QUANTITIES
from ray_sentinel.diagnose.series import Bools, Floats
from ray_sentinel.diagnose.view import View

GHOST_SECONDS = 300.0
"""Seconds for which an exporter's cycle time must stand still to be repeated instead of
measured."""
_EXPORTER = "the exporter's log of a node (metrics_exporter/HOST.log, or logs/HOST/)"
_EXPECTED = (
    ("gpu.power", "GPU power", "hangs cannot be told from work", _EXPORTER),
    ("gpu.util", "GPU utilisation", "busy-waiting cannot be told from idling",
     f"Ray's own logs (ray_logs/HOST/dashboard_agent.log), else {_EXPORTER}"),
    ("gpu.temp", "GPU temperature", "heat is not seen", _EXPORTER),
    ("train.step", "training steps", "stalls are found from power alone",
     f"whether event files are written, and {_EXPORTER}"),
    ("rdma.retx", "RDMA counters", "the network cannot be cleared or blamed", _EXPORTER),
    ("host.procs_running", "host series", "contention is not seen", _EXPORTER),
    ("mem.used", "Ray's series", "memory on the hosts may not be seen",
     "Ray's own logs (ray_logs/HOST/gcs_server.out, raylet.out)"),
)  # fmt: skip


def ghosts(view: View) -> dict[str, Bools]:
    """Host → cells (T,) in which its hardware series are ghosts."""
    scrape, power = view.raw("scrape.duration"), view.raw("gpu.power")
    if scrape.empty:
        return {}
    least = max(int(GHOST_SECONDS / view.step), 5)
    found: dict[str, Bools] = {}
    for row, values in zip(scrape.rows, scrape.values, strict=True):
        cells = _frozen(values, least)
        # Some exporters always write a constant cycle time: that proves nothing.
        if np.nanmax(values) == np.nanmin(values) or not cells.any():
            continue
        own = power.of(row.host)
        if not own.empty:
            cells = cells & _all_frozen(own, least)
        if cells.any():
            found[row.host] = cells
    return found


def _frozen(values: Floats, least: int) -> Bools:
    """Cells of (T,) in runs of at least ``least`` equal values."""
    same = np.zeros(values.size, dtype=bool)
    same[1:] = values[1:] == values[:-1]
    out = np.zeros(values.size, dtype=bool)
    for left, right in stats.runs(same):
        if right - left >= least:
            # The first value of a run was still measured.
            out[left:right] = True
    return out


def _all_frozen(panel: SeriesPanel, least: int) -> Bools:
    flags = np.array([_frozen(row, least) | np.isnan(row) for row in panel.values])
    return np.asarray(flags.all(axis=0))


def presence(view: View) -> tuple[tuple[str, ...], Bools]:
    """Hosts, and the cells (H, T) in which each has any hardware or host sample at all."""
    found: dict[str, Bools] = {}
    for key in ("host.procs_running", "gpu.power", "gpu.util", "mem.used", "scrape.duration",
                "tcp.retx", "mem.available", "gpu.temp", "rdma.port", "train.step"):  # fmt: skip
        panel = view.raw(key)
        for row, values in zip(panel.rows, panel.values, strict=True):
            if row.host:
                known = ~np.isnan(values)
                found[row.host] = known | found.get(row.host, known)
    hosts = tuple(sorted(found))
    cells = np.array([found[host] for host in hosts], dtype=bool)
    return hosts, cells.reshape(len(hosts), view.times.size)


def groups(families: frozenset[str]) -> tuple[dict[str, int], tuple[str, ...]]:
    """Number of families by group, and the names that belong to none."""
    count: dict[str, int] = {}
    other = []
    for family in sorted(families):
        for group, prefixes in FAMILY_GROUPS:
            if family.startswith(prefixes):
                count[group] = count.get(group, 0) + 1
                break
        else:
            if not family.startswith(("up", "scrape_", "ray_sentinel_", "prometheus_", "go_")):
                other.append(family)
    return count, tuple(other)


def missing(view: View) -> list[str]:
    """Missing families, each with what cannot be determined without it, and the log that may
    explain why."""
    alike = {"mem.used": ("mem.available", "mem.cgroup_used")}
    return [
        f"no {title} ({QUANTITIES[key].names[0].metric}): {lost}; see {log}"
        for key, title, lost, log in _EXPECTED
        if all(view.raw(name).empty for name in (key, *alike.get(key, ())))
    ]


def unseen(hosts: int, arguments: Mapping[str, str]) -> str:
    """A sentence if fewer hosts were scraped than the job had; empty if all were."""
    text = arguments.get("NNODES", "") or arguments.get("SLURM_NNODES", "")
    if not text.isdecimal() or int(text) == hosts:
        return ""
    if int(text) < hosts:
        return f"NNODES is {text} and {hosts} hosts have series: some are not this job's"
    return (
        f"only {hosts} of {text} nodes (NNODES) have series: nothing is known of the others; "
        "Prometheus's log (prometheus/prometheus.log) tells why a target was not scraped"
    )


def gaps(known: Bools, view: View) -> tuple[tuple[float, float], ...]:
    """Ranges inside the data in which no host (H, T) has a sample."""
    if not known.size or not known.any():
        return ()
    some = np.asarray(known.any(axis=0))
    first, last = np.flatnonzero(some)[[0, -1]]
    hole: Bools = np.logical_not(some)
    hole[:first] = hole[last:] = False
    return tuple(
        (float(view.times[left]), float(view.times[right - 1]))
        for left, right in stats.runs(hole)
        if right - left >= 2
    )

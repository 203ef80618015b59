"""Node failure and hardware faults: memory, PCIe and link errors, Xids, drivers, lost devices."""

from __future__ import annotations

import numpy as np

from ray_sentinel.diagnose import stats, wording
from ray_sentinel.diagnose import stop as stops
from ray_sentinel.diagnose.anomaly import Anomaly
from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.detect import driver, faults, rdma, series_end
from ray_sentinel.diagnose.detect.driver import DriverTrouble
from ray_sentinel.diagnose.detect.faults import DeviceErrors
from ray_sentinel.diagnose.panel import listed
from ray_sentinel.diagnose.wording import moment
from ray_sentinel.model.diagnosis import Diagnosis, Figure
from ray_sentinel.model.thresholds import GPU_HOT, GPU_HOTTER_THAN_USUAL

NAME = "node-hardware-failure"
ANALYSIS = "hardware"
ALIASES: tuple[str, ...] = ("node-failure", "node-fail", "signal-kill", "unknown-death", "4")
TITLE = "Node failure and hardware"
SLOWING: frozenset[str] = frozenset()

LEAST_HOT = 2
"""Least number of hot cells: one reading may be wrong."""

_CAUSES = {
    "ras-ue": "uncorrectable-memory-error",
    "ecc-ue": "uncorrectable-memory-error",
    "link-ue": "uncorrectable-link-error",
    "gpu-ue": "uncorrectable-gpu-error",
    "pcie-fatal": "pcie-fatal",
    "xid": "xid",
}


def applies(case: JobCase) -> float:
    """Whether there are error counters, or a host disappeared."""
    seen = faults.counted(case) or any(
        map(case.once, (series_end.hosts, series_end.gpus, driver.find))
    )
    return 0.7 if case.hosts and seen else 0.0


def run(case: JobCase) -> Diagnosis:
    """Fatal errors, lost GPUs, a hanging driver, nodes lost with errors; else the all-clear."""
    found = case.once(faults.find)
    fatal = [fault for fault in found if fault.severity == "fatal" or _ended(case, fault)]
    gone = case.once(series_end.gpus)
    if fatal:
        return _fatal(case, fatal, gone)
    if gone:
        return _gpu_lost(case, gone)
    kernel = [fault for fault in found if fault.kind == "dmesg-gpu"]
    sick = list(case.once(driver.find))
    if kernel or sick:
        return _driver(case, kernel, sick)
    degrading = [fault for fault in found if fault.severity == "degrading"]
    if degrading:
        text = (
            "No hardware failure; some parts degrade: "
            + listed([fault.text for fault in degrading], 3)
            + "."
        )
        facts = tuple(fault.fact() for fault in degrading)
        return wording.plain("not-this", "degrading", text, 0.7, facts)
    dead = case.once(series_end.hosts)
    if dead:
        names = listed([one.host for one in dead])
        text = f"{names} went away without any hardware error having been counted."
        facts = tuple(one.fact() for one in dead)
        return wording.plain("unknown", "node-lost", text, 0.5, facts)
    if not faults.counted(case):
        text = "No error counter of any GPU, link or driver is recorded: faults would not be seen."
        return wording.plain("unknown", "no-data", text, 0.3)
    text = "No hardware fault: no error counter of any GPU, link or driver grew during the job."
    if found:
        said = listed([fault.text for fault in found], 3)
        text = f"No hardware fault: what was counted is what healthy parts count ({said})."
        facts = tuple(fault.fact() for fault in found[:6])
        return wording.plain("not-this", "none", text, 0.85, facts)
    return wording.plain("not-this", "none", text, 0.9)


def _ended(case: JobCase, fault: DeviceErrors) -> bool:
    """An Xid that is in no class, after which the job stopped."""
    odd = fault.kind == "xid" and fault.severity == "degrading"
    return odd and stops.ended_by(case, fault.at) is not None


def _fatal(case: JobCase, fatal: list[DeviceErrors], gone: tuple[Anomaly, ...]) -> Diagnosis:
    first = min(fatal, key=lambda fault: fault.at)
    near = [fault for fault in fatal if fault.host == first.host or fault.at <= first.at + 60.0]
    cause = _CAUSES[first.kind]
    stopped = stops.ended_by(case, first.at)
    effect = _effect(case, first.at, stopped)
    text = f"Hardware fault: {first.text}{effect}. The GPU and its node must be drained."
    anomalies = [
        *_hot_before(case, first.host, first.gpu, first.at),
        *sorted(near, key=lambda fault: fault.at),
        *(one for one in gone if one.host == first.host),
    ]
    return _answer(case, cause, text, anomalies, stopped, 0.92 if stopped else 0.7)


def _hot_before(case: JobCase, host: str, gpu: str, at: float) -> list[Anomaly]:
    """The heat of a card, or of any card of its host, in the minutes before it failed."""
    panel = case.view.panel("gpu.temp").pick(
        lambda row: row.host == host and (not gpu or row.gpu == gpu)
    )
    before = (case.times >= at - stops.LEAD_SECONDS) & (case.times <= at + case.cell)
    found = []
    for row, values in zip(panel.rows, panel.values, strict=True):
        usual = stats.middle(values[case.steady & (case.times < at - stops.LEAD_SECONDS)])
        own = usual + GPU_HOTTER_THAN_USUAL.limit if usual > 0 else 0.0
        hot = before & (values > max(GPU_HOT.limit, own))
        if hot.sum() < LEAST_HOT:
            continue
        first = int(np.flatnonzero(hot)[0])
        peak = float(stats.largest(values[hot]))
        text = f"GPU {row.gpu} of {host}: {peak:.0f} °C before it failed"
        text += f" (usually {usual:.0f} °C)" if np.isfinite(usual) else ""
        found.append(Anomaly.of_row(panel, row, "gpu.hot", text, first, peak))
    return found


def _ports(case: JobCase, at: float) -> tuple[Figure, ...]:
    """RDMA ports that went down in the time before."""
    return tuple(
        anomaly.fact()
        for port in case.once(rdma.find)
        for anomaly in port.anomalies
        if anomaly.kind == "rdma.port" and abs(anomaly.at - at) <= stops.LEAD_SECONDS
    )


def _gpu_lost(case: JobCase, gone: tuple[Anomaly, ...]) -> Diagnosis:
    first = gone[0]
    near = [one for one in gone if one.at <= first.at + 60.0]
    lost_gpus = {(one.host, one.gpu) for one in near}
    errors = [
        fault
        for fault in case.once(faults.find)
        if fault.severity != "note" and (fault.host, fault.gpu or first.gpu) in lost_gpus
    ]
    stopped = stops.ended_by(case, first.at)
    names = listed([f"GPU {one.gpu} of {one.host}" for one in near])
    text = f"{names} fell off the bus: it no longer answers, while its neighbours do" + (
        "; the job stopped." if stopped else "."
    )
    anomalies = [
        *_hot_before(case, first.host, first.gpu, first.at),
        *sorted([*near, *errors], key=lambda one: one.at),
    ]
    return _answer(case, "gpu-lost", text, anomalies, stopped, 0.9 if stopped else 0.65)


def _driver(case: JobCase, kernel: list[DeviceErrors], sick: list[DriverTrouble]) -> Diagnosis:
    hosts = sorted({one.host for one in sick} | {fault.host for fault in kernel})
    signs = [sign for one in sick for sign in one.anomalies]
    anomalies = sorted([*signs, *kernel], key=lambda anomaly: anomaly.at)
    stopped = stops.ended_by(case, anomalies[0].at)
    pile = "; unkillable processes pile up in D state" if any(o.dstate for o in sick) else ""
    text = f"GPU driver fault on {listed(hosts)}: the kernel log counts GPU errors" * bool(kernel)
    text = text or f"GPU driver fault on {listed(hosts)}: reading the GPUs hangs"
    text += (" and reading the GPUs hangs now and then" if kernel and sick else "") + pile
    text += (
        "; the job stopped after it." if stopped
        else ". Training itself goes on: only monitoring suffers. The node needs a reboot."
    )  # fmt: skip
    weight = 0.82 if stopped else 0.55 if kernel and sick else 0.5
    return _answer(case, "driver-fault", text, anomalies, stopped, weight)


def _effect(case: JobCase, at: float, stopped: stops.ProgressStop | None) -> str:
    """What happened to the job, as far as steps were recorded."""
    if stopped is not None:
        return "; the job stopped after it"
    after = int((case.line.advances > at).sum())
    if after:
        return f"; training went on ({after} times a step was recorded after it)"
    return "; what became of the training is not recorded"


def _answer(
    case: JobCase, cause: str, text: str, anomalies: list[Anomaly],
    stopped: stops.ProgressStop | None, weight: float,
) -> Diagnosis:  # fmt: skip
    culprits = wording.culprits_of(one for one in anomalies if one.host)
    named = {one.host for one in culprits if one.gpu}
    # A host is not named beside its own GPU.
    kept = tuple(one for one in culprits if one.gpu or one.host not in named)
    links = wording.linked(anomalies[:6])
    if stopped is not None:
        links.append(wording.job_stops(case, stopped, stopped.at))
    return Diagnosis(
        outcome="found",
        cause=cause,
        root_cause=text,
        confidence=0.9,
        weight=weight,
        onset=anomalies[0].at if anomalies else None,
        ended_job=stopped is not None,
        culprits=kept,
        chain=tuple(links),
        evidence=(
            *(anomaly.fact() for anomaly in anomalies),
            *(_ports(case, anomalies[0].at) if anomalies else ()),
        ),
        anomalies=tuple(anomaly.text for anomaly in anomalies),
        next_steps=(
            "Drain the node; give the administrator the report below.",
            "Restart from the last checkpoint without it."
            if stopped is not None
            else "Training goes on: move it off the node at the next checkpoint.",
        ),
        administrator=report(case, sorted({a.host for a in anomalies if a.host})),
    )  # fmt: skip


# The report that a cluster's administrator needs to act on a node with a hardware or driver fault.
#
# Node, kernel and driver versions, call stack, error count, processes in D state, onset, and that
# the other nodes are clean.

UNKNOWN = "not recorded"


def report(case: JobCase, hosts: list[str]) -> str:
    """One section for each host, in Markdown."""
    return "\n\n".join(_section(case, host) for host in hosts)


def _section(case: JobCase, host: str) -> str:
    own = [fault for fault in case.once(faults.find) if fault.host == host]
    sick = next((one for one in case.once(driver.find) if one.host == host), None)
    info = _versions(case, host)
    onset = min([fault.at for fault in own] + ([sick.at] if sick else []), default=None)
    kernel = sum(fault.size for fault in own if fault.kind == "dmesg-gpu")
    lines = [
        f"**Node:** {host}",
        f"**Kernel:** {info.get('kernel') or UNKNOWN}",
        f"**GPU driver:** {info.get('amdgpu') or info.get('nvidia') or UNKNOWN}",
        f"**Onset:** {UNKNOWN if onset is None else moment(onset)}",
        f"**GPU errors in the kernel log during the job:** {kernel:.0f}",
        f"**Processes in D state:** {f'{sick.dstate:.0f} {sick.wchan}'.strip() if sick else '0'}",
        *(f"**Error:** {fault.text}" for fault in own if fault.kind != "dmesg-gpu"),
        *(f"**Sign:** {sign.text}" for sign in (sick.anomalies if sick else ())),
        f"**Kernel log:** {_kernel_log(case, host)}",
        f"**Other nodes:** {_others(case, host)}",
    ]
    return "\n".join(f"- {line}" for line in lines)


def _versions(case: JobCase, host: str) -> dict[str, str]:
    panel = case.view.panel("host.info").of(host)
    return dict(panel.rows[0].labels) if panel.rows else {}


def _kernel_log(case: JobCase, host: str) -> str:
    lines = [fact.text for fact in case.logs.facts if fact.source == "kernel" and fact.host == host]
    if lines:
        return "\n" + "\n".join(f"      {line}" for line in lines[-40:])
    return f"{UNKNOWN}; `ray-sentinel inspect {host}` reads it now"


def _others(case: JobCase, host: str) -> str:
    dirty = sorted(
        {fault.host for fault in case.once(faults.find) if fault.severity != "note"} - {host}
    )
    count = len(case.hosts) - 1
    if not dirty:
        return f"all {count} clean" if count > 0 else "there are none"
    return f"{count - len(dirty)} of {count} clean; also with errors: {listed(dirty)}"

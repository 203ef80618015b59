"""GPU health: temperatures, power, clocks, memory and errors, across all GPUs of the job."""

from __future__ import annotations

import msgspec
import numpy as np

from ray_sentinel.diagnose import stats, wording
from ray_sentinel.diagnose.anomaly import Anomaly, at_row
from ray_sentinel.diagnose.case import Case
from ray_sentinel.diagnose.detect import attribution, drift, faults
from ray_sentinel.diagnose.detect.attribution import Attribution
from ray_sentinel.diagnose.detect.outliers import outliers
from ray_sentinel.diagnose.panel import listed
from ray_sentinel.diagnose.slowness import slow_link
from ray_sentinel.model.diagnosis import Diagnosis, Fact, Table

NAME = "gpu-health"
ANALYSIS = "gpu-health"
ALIASES: tuple[str, ...] = ("gpu", "gpus", "5")
TITLE = "GPU health"

HOT = 90.0
"""°C that no GPU should have for as long as ``HOT_SECONDS``, whatever its usual."""
THROTTLING = 100.0
"""°C."""
HOT_SECONDS = 120.0
"""A GPU that is hot for less is in a peak of load."""
POWER_OUTLIER = 0.15
"""Share of the usual power."""
CLOCK_OUTLIER = 0.06
"""Share of the usual clock."""
VRAM_FULL = 0.97
"""Share of the GPU's memory."""


def applies(case: Case) -> float:
    """There is anything that tells of GPUs."""
    keys = ("gpu.temp", "gpu.power", "gpu.clock", *faults.DEGRADING)
    return 0.6 if any(case.view.has(key) for key in keys) else 0.0


def run(case: Case) -> Diagnosis:
    """A GPU that slows the job, else one that is not well, else the all-clear; with the figures."""
    fits = case.once(attribution.find)
    if fits and fits[0].candidate.domain in {"thermal", "power"}:
        return _slows(case, fits[0])
    found = _unwell(case)
    if found:
        return _present(case, found)
    if not case.view.panel("gpu.power").rows and not case.view.panel("gpu.temp").rows:
        text = "No GPU series: nothing can be said of the GPUs."
        return wording.plain(case, NAME, ANALYSIS, "unknown", "no-data", text, 0.3)
    text = "The GPUs are healthy: no errors, no card out of line."
    return _with_summary(case, wording.plain(case, NAME, ANALYSIS, "healthy", "none", text, 0.85))


def _slows(case: Case, fit: Attribution) -> Diagnosis:
    candidate = fit.candidate
    text = (
        f"Thermal throttling or held-down clocks: {candidate.text} made every step "
        f"{fit.effect:.0%} slower, because all GPUs wait for the slowest."
        if candidate.cause != "thermal"
        else f"Thermal throttling: {candidate.text} pulled clock and power down and made every "
        f"step {fit.effect:.0%} slower, because all GPUs wait for the slowest."
    )
    anomalies = sorted(candidate.anomalies, key=lambda anomaly: anomaly.at)
    anomalies.sort(key=lambda anomaly: anomaly.kind != "gpu.hot")
    links = wording.linked(anomalies)
    return _with_summary(
        case,
        Diagnosis(
            analysis=ANALYSIS,
            playbook=NAME,
            outcome="found",
            cause=candidate.cause,
            root_cause=text,
            confidence=0.88,
            weight=0.85,
            window=(case.line.start, case.line.end),
            onset=candidate.at,
            culprits=candidate.culprits,
            chain=(*links, slow_link(case, fit)),
            evidence=tuple(anomaly.fact() for anomaly in anomalies),
            anomalies=tuple(anomaly.text for anomaly in anomalies),
            next_steps=_next_steps(candidate.cause),
        ),
    )


def _unwell(case: Case) -> list[tuple[str, float, Anomaly]]:
    """(cause, weight, anomaly) of every GPU that is not well, the gravest first."""
    found = [("overheating", 0.55, anomaly) for anomaly in _too_hot(case)]
    throttled = {one.card for one in case.once(drift.clocks)}
    found += [
        ("thermal", 0.5, one.anomaly)
        for one in case.once(drift.hot)
        if one.card in throttled or one.size >= 2 * drift.HOT_RISE
    ]
    found += [("clock-drop", 0.5, one.anomaly) for one in case.once(drift.clocks)]
    power = stats.middle(np.where(case.steady, case.view.panel("gpu.power").values, np.nan))
    clock = stats.middle(np.where(case.steady, case.view.panel("gpu.clock").values, np.nan))
    for key, least, cause in (
        ("gpu.power", POWER_OUTLIER * power, "power-outlier"),
        ("gpu.clock", CLOCK_OUTLIER * clock, "clock-outlier"),
    ):
        if np.isfinite(least):
            found += [(cause, 0.42, anomaly) for anomaly in outliers(case, key, least=least)]
    found += [
        (_DEGRADING.get(fault.kind, "degrading-link"), 0.45, fault.anomaly)
        for fault in case.once(faults.find)
        if fault.severity == "degrading" and fault.gpu and fault.kind != "xid"
    ]
    found += [("memory-full", 0.4, anomaly) for anomaly in _full(case)]
    seen: set[tuple[str, str, str]] = set()
    unique = []
    for cause, weight, anomaly in sorted(found, key=lambda item: (-item[1], item[2].at)):
        key3 = (anomaly.host, anomaly.gpu, anomaly.kind)
        if key3 not in seen:
            seen.add(key3)
            unique.append((cause, weight, anomaly))
    return unique


def _too_hot(case: Case) -> list[Anomaly]:
    panel = case.view.panel("gpu.temp")
    cells = max(2, int(HOT_SECONDS / case.cell))
    found = []
    for row, values in zip(panel.rows, panel.values, strict=True):
        with np.errstate(invalid="ignore"):
            hot = values > HOT
        spans = [(a, b) for a, b in stats.runs(stats.joined(hot, 2)) if b - a >= cells]
        if not spans:
            continue
        left, right = spans[0][0], spans[-1][1] - 1
        peak = float(stats.largest(values[left : right + 1]))
        text = f"GPU {row.gpu} of {row.host}: {peak:.0f} °C, above {HOT:.0f} °C"
        text += ": it throttles" if peak > THROTTLING else ""
        found.append(at_row(panel, row, "gpu.hot", text, left, right, peak))
    # Where most of the cards are as hot, the limit is not this model's.
    return found if len(found) <= 0.5 * max(len(panel.rows), 1) else []


def _full(case: Case) -> list[Anomaly]:
    used, total = case.view.panel("gpu.vram_used"), case.view.panel("gpu.vram_total")
    limits = {(row.host, row.gpu): stats.middle(values)
              for row, values in zip(total.rows, total.values, strict=True)}  # fmt: skip
    found = []
    for row, values in zip(used.rows, used.values, strict=True):
        limit = limits.get((row.host, row.gpu), float("nan"))
        share = float(stats.largest(values)) / limit if limit else float("nan")
        if share > VRAM_FULL:
            at = int(np.nanargmax(values))
            text = f"GPU {row.gpu} of {row.host}: {share:.0%} of its memory is used"
            found.append(at_row(used, row, "gpu.memory-full", text, at, at, share))
    # Frameworks reserve the same share on all cards by design: only some that differ are news.
    return found if len(found) <= 0.5 * max(len(used.rows), 1) else []


def _present(case: Case, found: list[tuple[str, float, Anomaly]]) -> Diagnosis:
    cause, weight, first = found[0]
    same = [anomaly for other, _, anomaly in found if other == cause]
    names = [f"GPU {one.gpu} of {one.host}" if one.gpu else one.host for one in same]
    text = f"{_TITLES[cause]}: {listed(names)}. {first.text}; no effect on the step time is seen."
    return _with_summary(
        case,
        Diagnosis(
            analysis=ANALYSIS,
            playbook=NAME,
            outcome="found",
            cause=cause,
            root_cause=text,
            confidence=0.75,
            weight=weight,
            window=(case.line.start, case.line.end),
            onset=first.at,
            culprits=wording.culprits_of(same),
            chain=tuple(wording.linked(same[:6])),
            evidence=tuple(anomaly.fact() for _, _, anomaly in found[:12]),
            anomalies=tuple(anomaly.text for _, _, anomaly in found),
            next_steps=_next_steps(cause),
        ),
    )


_DEGRADING = {
    "ras-ce": "degrading-memory",
    "ecc-ce": "degrading-memory",
    "remapped": "degrading-memory",
    "gpu-ce": "degrading-gpu",
}
"""Kinds of faults → causes; the others are of links (XGMI, NVLink, PCIe)."""
_TITLES = {
    "overheating": "Overheating",
    "thermal": "A GPU runs hotter than its load explains",
    "clock-drop": "Core clock held down",
    "power-outlier": "Power out of line",
    "clock-outlier": "Core clock out of line",
    "degrading-memory": "Correctable errors pile up: degrading hardware",
    "degrading-gpu": "Correctable errors pile up: degrading hardware",
    "degrading-link": "Link errors pile up: a degrading link",
    "memory-full": "GPU memory nearly full",
}


def _next_steps(cause: str) -> tuple[str, ...]:
    if cause in {"thermal", "overheating", "clock-drop"}:
        return ("Check cooling (fans, coolant flow, inlet temperature) of the named node.",
                "Check power capping and throttle reasons of the named GPU.",
                "Move the job off the GPU if it persists.")  # fmt: skip
    if cause.startswith("degrading"):
        return ("Have the named GPU tested; drain the node at the next job boundary.",)
    if cause == "memory-full":
        return ("Lower the batch size or the memory share on the named GPUs.",)
    return ("Compare the named GPU's limits and clocks with its neighbours'.",)


def _with_summary(case: Case, diagnosis: Diagnosis) -> Diagnosis:
    rows, facts = _summary(case)
    table = Table(
        title=f"GPU health summary ({len(case.hosts)} nodes, "
        f"{len(case.view.panel('gpu.power').rows)} GPUs)",
        columns=("What", "Figures"),
        rows=tuple(rows),
        promql=case.promql("gpu.temp"),
    )
    return msgspec.structs.replace(
        diagnosis,
        tables=(*diagnosis.tables, table),
        evidence=(*diagnosis.evidence, *facts),
    )


def _summary(case: Case) -> tuple[list[tuple[str, str]], list[Fact]]:
    rows, facts = [], []
    for title, key, unit in (
        ("Temperature", "gpu.temp", "°C"), ("Power", "gpu.power", "W"),
        ("Core clock", "gpu.clock", "MHz"), ("Utilisation", "gpu.util", "%"),
    ):  # fmt: skip
        panel = case.view.panel(key)
        values = np.where(case.steady, panel.values, np.nan)
        if not np.isfinite(values).any():
            continue
        low, high = float(stats.smallest(values)), float(stats.largest(values))
        usual = float(stats.mean(values))
        text = f"min {low:.0f} {unit}, max {high:.0f} {unit}, avg {usual:.0f} {unit}"
        rows.append((title, text))
        facts.append(
            Fact(
                text=f"{title} in training: {text}",
                metric=panel.metric,
                promql=panel.promql(),
                value=usual,
                unit=unit,
            )
        )
    count = {"ce": 0.0, "ue": 0.0, "pcie": 0.0}
    for fault in case.once(faults.find):
        kind = "pcie" if "pcie" in fault.kind else "ue" if "ue" in fault.kind else "ce"
        if fault.gpu:
            count[kind] += fault.count
    rows.append(("Memory and link errors", f"{count['ce']:.0f} correctable, {count['ue']:.0f} "
                 "uncorrectable"))  # fmt: skip
    rows.append(("PCIe errors", f"{count['pcie']:.0f}"))
    return rows, facts

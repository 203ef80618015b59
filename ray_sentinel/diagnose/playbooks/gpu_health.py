"""GPU health: temperatures, power, clocks, memory and errors, across all GPUs of the job."""

from __future__ import annotations

import msgspec
import numpy as np

from ray_sentinel.diagnose import stats, wording
from ray_sentinel.diagnose.anomaly import Anomaly
from ray_sentinel.diagnose.case import TOP_LEVEL, JobCase, everywhere
from ray_sentinel.diagnose.detect import attribution, drift, faults, pace
from ray_sentinel.diagnose.detect.attribution import Attribution
from ray_sentinel.diagnose.panel import SeriesOwner, SeriesPanel, listed
from ray_sentinel.diagnose.slowness import slow_link
from ray_sentinel.model.diagnosis import Diagnosis, Figure, FigureTable
from ray_sentinel.model.thresholds import (
    GPU_CLOCK_OUT_OF_LINE,
    GPU_HOT,
    GPU_HOTTER_THAN_USUAL,
    GPU_MEMORY_FULL,
    GPU_MEMORY_TIGHT,
    GPU_NEAR_THROTTLING,
    GPU_POWER_OUT_OF_LINE,
    GPU_POWER_SPREAD,
    GPU_UNDERUSED,
)

NAME = "gpu-health"
ANALYSIS = "gpu-health"
ALIASES: tuple[str, ...] = ("gpu", "gpus", "5")
TITLE = "GPU health"
SLOWING = frozenset({"thermal", "clock-drop", "power-drop", "degrading-link"})

LOW_UTILISATION = 100.0 * GPU_UNDERUSED.limit
"""Per cent, as the quantity has it."""
OURS = frozenset({"thermal", "power", "device"})
"""Domains of a slowdown that this playbook answers for."""
MOST = 0.5
"""Share of the cards that may be too hot for it to be a matter of single cards."""


def applies(case: JobCase) -> float:
    """Whether any GPU series are recorded."""
    keys = ("gpu.temp", "gpu.power", "gpu.clock", *faults.DEGRADING)
    return 0.6 if any(case.view.has(key) for key in keys) else 0.0


def run(case: JobCase) -> Diagnosis:
    """A GPU that slows the job, else one that is not well, else the all-clear; with the figures."""
    answer = _judged(case)
    return answer if answer.cause == "no-data" else _with_summary(case, answer)


def _judged(case: JobCase) -> Diagnosis:
    fits = case.once(attribution.find)
    if fits and fits[0].candidate.domain in OURS:
        return _slows(case, fits[0])
    if (room := _hot_room(case)) is not None:
        return room
    found = _unwell(case)
    if found:
        return _present(case, found)
    if not case.view.panel("gpu.power").rows and not case.view.panel("gpu.temp").rows:
        text = "No GPU series: nothing can be said of the GPUs."
        return wording.plain("unknown", "no-data", text, 0.3)
    fatal = [one for one in case.once(faults.find) if one.severity == "fatal" and one.gpu]
    if fatal:
        text = f"{fatal[0].text}: see the playbook node-hardware-failure."
        return wording.plain("not-this", "device-fault", text, 0.85)
    text = f"The GPUs are healthy: {_few_errors(case)}, no card out of line."
    notes = _notes(case)
    if notes:
        text = f"{text[:-1]}. Worth a look: {'; '.join(note.text for note in notes)}."
    plain = wording.plain("healthy", "none", text, 0.85, notes)
    return msgspec.structs.replace(plain, anomalies=tuple(note.text for note in notes))


def _few_errors(case: JobCase) -> str:
    """The errors that were counted, if they are too few to be a fault."""
    found = [fault for fault in case.once(faults.find) if fault.gpu]
    if not found:
        return "no errors" if faults.counted(case) else "no error counter is recorded"
    return "a few errors, as cards have them (" + listed([one.text for one in found], 3) + ")"


def _slows(case: JobCase, fit: Attribution) -> Diagnosis:
    candidate = fit.candidate
    title = _SLOW_TITLES[candidate.domain]
    pulled = " pulled clock and power down and" if candidate.cause == "thermal" else ""
    text = (
        f"{title}: {candidate.text}{pulled} made every step {fit.effect:.0%} slower, because all "
        "GPUs wait for the slowest."
    )
    anomalies = sorted(candidate.anomalies, key=lambda anomaly: anomaly.at)
    # What is set and what heats is the cause of what follows, which is seen as soon.
    anomalies.sort(key=lambda anomaly: anomaly.kind not in {"gpu.hot", "gpu.power_limit"})
    links = wording.linked(wording.of_hosts(anomalies))
    return Diagnosis(
        outcome="found",
        cause=candidate.cause,
        root_cause=text,
        confidence=0.88,
        weight=0.85,
        onset=candidate.at,
        passed=fit.recovered,
        culprits=candidate.culprits,
        chain=(*links, slow_link(case, fit)),
        evidence=tuple(anomaly.fact() for anomaly in anomalies),
        anomalies=tuple(anomaly.text for anomaly in anomalies),
        next_steps=_next_steps(candidate.cause if candidate.culprits else "facility"),
    )


def _unwell(case: JobCase) -> list[tuple[str, float, Anomaly]]:
    """(cause, weight, anomaly) of every GPU that is not well, the gravest first."""
    found: list[tuple[str, float, Anomaly]] = [
        ("overheating", 0.55, anomaly) for anomaly in _too_hot(case)
    ]
    throttled = {one.card for one in case.once(drift.clocks)}
    found += [
        ("thermal", 0.5, one)
        for one in case.once(drift.hot)
        if one.card in throttled or one.size >= 2 * GPU_HOTTER_THAN_USUAL.limit
    ]
    found += [("clock-drop", 0.5, one) for one in case.once(drift.clocks)]
    power = stats.middle(np.where(case.steady, case.view.panel("gpu.power").values, np.nan))
    clock = stats.middle(np.where(case.steady, case.view.panel("gpu.clock").values, np.nan))
    for key, least, cause in (
        ("gpu.power", GPU_POWER_OUT_OF_LINE.limit * power, "power-outlier"),
        ("gpu.clock", GPU_CLOCK_OUT_OF_LINE.limit * clock, "clock-outlier"),
    ):
        if np.isfinite(least):
            found += [(cause, 0.42, anomaly) for anomaly in outliers(case, key, least=least)]
    found += [
        (_DEGRADING.get(fault.kind, "degrading-link"), 0.45, fault)
        for fault in case.once(faults.find)
        if fault.severity == "degrading" and fault.gpu and fault.kind != "xid"
    ]
    found += [("memory-full", 0.4, anomaly) for anomaly in _full(case)]
    unique: dict[tuple[str, str, str], tuple[str, float, Anomaly]] = {}
    for one in sorted(found, key=lambda item: (-item[1], item[2].at)):
        unique.setdefault((one[2].host, one[2].gpu, one[2].kind), one)
    return list(unique.values())


def _too_hot(case: JobCase) -> list[Anomaly]:
    """Single cards above the limit; where most of them are, see ``_hot_room``."""
    found = case.once(_above_limit)
    return list(found) if len(found) <= MOST * len(case.view.panel("gpu.temp").rows) else []


def _above_limit(case: JobCase) -> tuple[Anomaly, ...]:
    panel = case.view.panel("gpu.temp")
    cells = max(2, int(GPU_HOT.seconds / case.cell))
    found = []
    for row, values in zip(panel.rows, panel.values, strict=True):
        hot = values > GPU_HOT.limit
        spans = [(a, b) for a, b in stats.runs(stats.joined(hot, 2)) if b - a >= cells]
        if not spans:
            continue
        left, right = spans[0][0], spans[-1][1] - 1
        peak = float(stats.largest(values[left : right + 1]))
        text = f"GPU {row.gpu} of {row.host}: {peak:.0f} °C, above {GPU_HOT.limit:.0f} °C"
        text += ": it throttles, or soon will" if GPU_NEAR_THROTTLING.crossed(peak) else ""
        found.append(Anomaly.of_row(panel, row, "gpu.hot", text, left, peak))
    return tuple(found)


def _hot_room(case: JobCase) -> Diagnosis | None:
    """Most cards of the job are above the limit: their common cooling has failed, or one host's
    fans."""
    found = case.once(_above_limit)
    panel = case.view.panel("gpu.temp")
    if len(found) <= MOST * len(panel.rows):
        return None
    hosts = sorted({one.host for one in found})
    shared = everywhere(len(hosts), len(panel.hosts))
    where = f"all {len(panel.hosts)} hosts" if shared else listed(hosts)
    low, high = min(one.size for one in found), max(one.size for one in found)
    text = (
        f"Overheating: {len(found)} of {len(panel.rows)} GPUs, on {where}, come to {low:.0f} to "
        f"{high:.0f} °C, above {GPU_HOT.limit:.0f} °C"
    )
    throttle = GPU_NEAR_THROTTLING.crossed(high)
    text += f"; from {GPU_NEAR_THROTTLING.limit:.0f} °C on they throttle" if throttle else ""
    text += ". What cools all of them fails: the facility, no card" if shared else ""
    first = min(found, key=lambda one: one.at)
    return Diagnosis(
        outcome="found",
        cause="overheating",
        root_cause=f"{text}. {_effect(case)}",
        confidence=0.85 if throttle else 0.6,
        weight=0.6 if throttle else 0.45,
        onset=first.at,
        culprits=() if shared else wording.culprits_of(found),
        chain=tuple(wording.linked(sorted(found, key=lambda one: one.at)[:6])),
        evidence=tuple(anomaly.fact() for anomaly in found[:12]),
        anomalies=tuple(anomaly.text for anomaly in found),
        next_steps=_next_steps("facility" if shared else "overheating"),
    )


def _effect(case: JobCase) -> str:
    """What the steps did, in one sentence."""
    tempo = case.once(pace.find)
    if not tempo.known:
        return "Whether it slowed the steps is not recorded."
    if tempo.worst >= 1.0 + pace.SLOWER:
        return f"Steps took up to {tempo.worst:.2f} times as long as at their best."
    return "The step time did not change while it was watched."


def _notes(case: JobCase) -> tuple[Figure, ...]:
    """Findings that are within bounds for a running job but worth a check."""
    found = []
    util = case.view.panel("gpu.util")
    # What counts is the share of the time: a middle value shows one of work and rest alone.
    use = float(stats.mean(np.where(case.steady, util.values, np.nan)))
    if use < LOW_UTILISATION:
        text = f"GPU utilisation {use:.0f} % in training, below {LOW_UTILISATION:.0f} %"
        found.append(util.figure(text, use, "%"))
    used = case.view.panel("gpu.vram_used")
    shares = [share for _, _, share in _vram(case) if GPU_MEMORY_TIGHT.crossed(share)]
    if shares:
        text = f"{len(shares)} GPUs use up to {max(shares):.0%} of their memory: the next "
        text += "allocation may fail"
        found.append(used.figure(text, max(shares)))
    power = case.view.panel("gpu.power")
    levels = stats.median(np.where(case.steady, power.values, np.nan), axis=1)
    spread = float(stats.largest(levels) - stats.smallest(levels)) if levels.size else 0.0
    if GPU_POWER_SPREAD.crossed(spread):
        least = GPU_POWER_SPREAD.limit
        text = f"the GPUs' power differs by {spread:.0f} W, more than {least:.0f} W"
        found.append(power.figure(text, spread, "W"))
    return tuple(found)


def _vram(case: JobCase) -> list[tuple[int, SeriesOwner, float]]:
    """Index, row and greatest share of its memory of each GPU whose memory is known."""
    used, total = case.view.panel("gpu.vram_used"), case.view.panel("gpu.vram_total")
    limits = {(row.host, row.gpu): stats.middle(values)
              for row, values in zip(total.rows, total.values, strict=True)}  # fmt: skip
    found = []
    for index, (row, values) in enumerate(zip(used.rows, used.values, strict=True)):
        limit = limits.get((row.host, row.gpu), 0.0)
        if limit > 0:
            found.append((index, row, float(stats.largest(values)) / limit))
    return found


def _full(case: JobCase) -> list[Anomaly]:
    used = case.view.panel("gpu.vram_used")
    found = []
    for index, row, share in _vram(case):
        if GPU_MEMORY_FULL.crossed(share):
            at = int(np.nanargmax(used.values[index]))
            text = f"GPU {row.gpu} of {row.host}: {share:.0%} of its memory is used"
            found.append(Anomaly.of_row(used, row, "gpu.memory-full", text, at, share))
    # Frameworks reserve the same share on all cards by design: only some that differ are news.
    return found if len(found) <= 0.5 * max(len(used.rows), 1) else []


def _present(case: JobCase, found: list[tuple[str, float, Anomaly]]) -> Diagnosis:
    cause, weight, first = found[0]
    same = [anomaly for other, _, anomaly in found if other == cause]
    names = wording.cards((one.host, one.gpu) for one in same if one.gpu)
    names = listed([*([names] if names else []), *(one.host for one in same if not one.gpu)])
    text = f"{_TITLES[cause]}: {names}. {first.text}. No effect on the step time is shown."
    return Diagnosis(
        outcome="found",
        cause=cause,
        root_cause=text,
        confidence=0.75,
        weight=weight,
        onset=first.at,
        culprits=wording.culprits_of(same),
        chain=tuple(wording.linked(same[:6])),
        evidence=tuple(anomaly.fact() for _, _, anomaly in found[:12]),
        anomalies=tuple(anomaly.text for _, _, anomaly in found),
        next_steps=_next_steps(cause),
    )


_DEGRADING = {
    "ras-ce": "degrading-memory",
    "ecc-ce": "degrading-memory",
    "remapped": "degrading-memory",
    "gpu-ce": "degrading-gpu",
}
"""Kind of fault → cause; the kinds not listed are faults of links (XGMI, NVLink, PCIe)."""
_SLOW_TITLES = {
    "thermal": "Thermal throttling",
    "power": "Clocks or power held down",
    "device": "A degrading link",
}
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
    if cause == "facility":
        return (
            "Have the facility's cooling checked: coolant flow, inlet temperature, power caps.",
            "Until then lower the power limit: throttled clocks cost more than a cap.",
        )
    if cause in {"thermal", "overheating", "clock-drop"}:
        return ("Check cooling (fans, coolant flow, inlet temperature) of the named node.",
                "Check power capping and throttle reasons of the named GPU.",
                "Move the job off the GPU if it persists.")  # fmt: skip
    if cause.startswith("degrading"):
        return ("Have the named GPU tested; drain the node at the next job boundary.",)
    if cause == "memory-full":
        return ("Lower the batch size or the memory share on the named GPUs.",)
    return ("Compare the named GPU's limits and clocks with its neighbours'.",)


def _with_summary(case: JobCase, diagnosis: Diagnosis) -> Diagnosis:
    rows, facts = _summary(case)
    table = FigureTable(
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


def _summary(case: JobCase) -> tuple[list[tuple[str, str]], list[Figure]]:
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
        rows.append((title, f"{text} ({_beside(key, panel)})"))
        facts.append(panel.figure(f"{title} in training: {text}", usual, unit))
    shares = _vram(case)
    if shares:
        used, total = case.view.panel("gpu.vram_used"), case.view.panel("gpu.vram_total")
        fullest = max(share for *_, share in shares)
        most, limit = float(stats.largest(used.values)), float(stats.largest(total.values))
        text = f"up to {fullest:.0%} used ({wording.size(most)} of {wording.size(limit)})"
        rows.append(("VRAM", text))
    return [*rows, *_error_rows(case)], facts


def _beside(key: str, panel: SeriesPanel) -> str:
    """The limit that a row of the summary is compared with."""
    if key == "gpu.temp":
        return f"threshold {GPU_HOT.limit:.0f} °C"
    if key == "gpu.clock":
        return f"highest seen {float(stats.quantile(panel.values, 0.99)):.0f} MHz"
    if key == "gpu.util":
        return f"threshold {LOW_UTILISATION:.0f} % in training"
    levels = stats.quantile(panel.values, TOP_LEVEL, axis=1)
    return f"spread between cards {float(stats.largest(levels) - stats.smallest(levels)):.0f} W"


_COUNTED = (
    ("Memory errors", (("correctable", ("ras-ce", "ecc-ce")),
                       ("uncorrectable", ("ras-ue", "ecc-ue")))),
    ("Engine and link errors", (("correctable", ("gpu-ce", "link-ce", "nvlink")),
                                ("uncorrectable", ("gpu-ue", "link-ue")))),
    ("PCIe errors", (("correctable", ("pcie-ce",)), ("replays", ("pcie-replay",)),
                     ("non-fatal", ("pcie-nonfatal",)), ("fatal", ("pcie-fatal",)))),
)  # fmt: skip


def _error_rows(case: JobCase) -> list[tuple[str, str]]:
    """Errors by kind, and the GPUs that have any."""
    found = [fault for fault in case.once(faults.find) if fault.gpu]
    rows = []
    for title, parts in _COUNTED:
        counts = [
            f"{sum(fault.size for fault in found if fault.kind in kinds):.0f} {name}"
            for name, kinds in parts
        ]
        rows.append((title, ", ".join(counts)))
    odd = {(one.host, one.gpu) for one in found} | {
        (one.host, one.gpu) for one in case.once(_above_limit)
    }
    names = [f"{host}:{gpu}" for host, gpu in sorted(odd)]
    rows.append(("Anomalous GPUs", listed(names, 12) or "none"))
    return rows


# GPUs that differ from all others throughout the job.

LEAST_CARDS = 6
"""Least number of GPUs that show what is usual among them."""
STRENGTH = 6.0
"""How many times the cards' own spread (sigma) a card must be away from the usual level to stand
out."""


def outliers(case: JobCase, key: str, *, least: float) -> tuple[Anomaly, ...]:
    """GPUs whose middle value at work lies ``least`` (in the quantity's unit) and far from the
    others'."""
    panel = case.view.panel(key)
    if len(panel.rows) < LEAST_CARDS or case.steady.sum() < 8:
        return ()
    # Over the whole time: cells in which all rest would count for one card more than for another.
    at_work = case.steady & ~drift.resting(case, panel)
    values = np.where(at_work, panel.values, np.nan)
    levels = stats.median(values, axis=1)
    usual, noise = stats.middle(levels), float(stats.sigma(levels))
    # Where a card rests in a part of each step, chance decides on which side its middle falls.
    means = stats.mean(values, axis=1)
    apart = np.abs(means - stats.middle(means)) >= least
    return tuple(
        Anomaly(
            kind=f"outlier.{key}",
            text=f"GPU {row.gpu} of {row.host}: {panel.quantity.title} {level:.0f} "
            f"{panel.quantity.unit} throughout, where the others have {usual:.0f}",
            at=case.line.start,
            uncertainty=case.cell,
            host=row.host,
            gpu=row.gpu,
            size=float(level - usual),
            metric=panel.metric,
            promql=panel.promql(row),
        )
        for row, level, too in zip(panel.rows, levels, apart, strict=True)
        if np.isfinite(level) and abs(level - usual) >= max(least, STRENGTH * noise) and too
    )

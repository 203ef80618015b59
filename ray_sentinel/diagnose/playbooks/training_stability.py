"""Training stability: losses, gradients, routing, schedule, step times and their contention."""

from __future__ import annotations

import msgspec
import numpy as np

from ray_sentinel.diagnose import stats, wording
from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.detect import (
    attribution,
    drift,
    faults,
    learning,
    pace,
    pressure,
    rdma,
    schedule,
    sockets,
    usage,
)
from ray_sentinel.diagnose.detect.attribution import Attribution
from ray_sentinel.diagnose.detect.curve import Curve
from ray_sentinel.diagnose.panel import listed
from ray_sentinel.diagnose.slowness import slow_link
from ray_sentinel.model.diagnosis import Diagnosis, Figure, FigureTable, Link
from ray_sentinel.model.thresholds import CONTAINER_FULL

NAME = "training-stability"
ANALYSIS = "training-stability"
ALIASES: tuple[str, ...] = ("training", "stability", "throughput", "7")
TITLE = "Training stability"
SLOWING = frozenset({"cpu-contention", "io-contention", "memory-pressure"})

OURS = frozenset({"cpu", "storage", "memory", "training"})
"""Domains of a slowdown that this playbook answers for; the others have playbooks of their own."""
_FINAL = ("loss-nan", "loss-diverged", "grad-nan")
PASSED_WEIGHT = 0.45
"""Weight of what the training recovered from: it cannot be why a job ended or is slow."""
CLIPPED = 3.0
"""How many times the norm after clipping the norm before must exceed for much of the usual gradient
to be cut away."""
_ROOTS = ("lr-jump", "grad-spike", "grad-nan", "moe-shift", "loss-nan", "loss-diverged",
          "loss-setback")  # fmt: skip


def applies(case: JobCase) -> float:
    """Steps or curves are recorded."""
    keys = ("train.step", "train.loss", "train.step_time", "train.throughput")
    return 0.6 if any(case.view.has(key) for key in keys) else 0.0


def run(case: JobCase) -> Diagnosis:
    """Broken curves first, then a regression of the step time with its source of contention."""
    answer = _judged(case)
    return msgspec.structs.replace(
        answer,
        evidence=(*answer.evidence, *_facts(case)),
        tables=(_checklist(case),),
        next_steps=_next_steps(answer.cause) if answer.outcome == "found" else (),
    )


def _judged(case: JobCase) -> Diagnosis:
    curves = case.once(learning.find)
    fits, tempo = case.once(attribution.find), case.once(pace.find)
    bad = [curve for curve in curves if curve.kind in _FINAL and curve.lasting]
    setback = [curve for curve in curves if curve.kind == "loss-setback"]
    if bad:
        return _broken(case, curves, bad)
    if fits and fits[0].candidate.domain in OURS and _matters(tempo):
        return _contended(case, fits)
    if fits and _matters(tempo):
        other = fits[0].candidate
        text = (
            f"Training itself is stable; steps are slow because of the {other.domain} domain: "
            f"{other.text}."
        )
        return wording.plain("not-this", other.cause, text, 0.85)
    if setback:
        return _broken(case, curves, setback)
    if tempo.regressed:
        return _unexplained(case, tempo)
    shifted = [curve for curve in curves if curve.kind == "moe-shift"]
    if shifted:
        return _routing(case, shifted[0])
    if not case.line.trained:
        return wording.plain("unknown", "never-trained", "No training steps are recorded.", 0.3)
    notes = f" Passing events: {listed([c.text for c in curves], 3)}." if curves else ""
    odd = _settings(case)
    if odd:
        notes += f" Worth a look: {'; '.join(odd)}."
    text = f"Training is stable: losses, gradients and step times keep their course.{notes}"
    plain = wording.plain("healthy", "none", text, 0.88)
    return msgspec.structs.replace(plain, anomalies=odd)


def _settings(case: JobCase) -> tuple[str, ...]:
    """Settings that the curves show, and that may not be as intended."""
    found = []
    raw, cut = (stats.median(case.view.panel(key).values, 0)
                for key in ("train.raw_grad_norm", "train.grad_norm"))  # fmt: skip
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = stats.middle((raw / cut)[case.steady]) if raw.size and cut.size else float("nan")
    if ratio > CLIPPED:
        found.append(
            f"gradients are clipped to 1/{ratio:.1f} of their usual norm: the limit may be too low"
        )
    if (flat := schedule.without_warm_up(case)) is not None:
        found.append(flat)
    return tuple(found)


def _matters(tempo: pace.StepPace) -> bool:
    return tempo.worst >= 1.0 + pace.SLOWER


def _broken(case: JobCase, curves: tuple[Curve, ...], bad: list[Curve]) -> Diagnosis:
    first_bad = min(bad, key=lambda curve: curve.at)
    before = [
        curve
        for curve in curves
        if curve.kind in _ROOTS and first_bad.at - 1800.0 <= curve.at <= first_bad.at + case.cell
    ]
    root = min(before, key=lambda curve: (curve.at, _ROOTS.index(curve.kind)))
    ordered = sorted(
        {id(c): c for c in (root, *before, *bad)}.values(),
        key=lambda curve: (curve.at, _ROOTS.index(curve.kind)),
    )
    final = first_bad.kind != "loss-setback"
    text = f"Training {'broke' if final else 'was set back'}: {root.text}" + (
        f", then {first_bad.text}." if first_bad is not root else "."
    )
    chain = [c.link("root" if c is root else "intermediate") for c in ordered]
    tempo = case.once(pace.find)
    if _matters(tempo):
        chain.append(slow_link(case))
    return Diagnosis(
        outcome="found",
        cause=root.kind,
        root_cause=text,
        confidence=0.88 if final else 0.7,
        weight=0.87 if final else PASSED_WEIGHT,
        onset=root.at,
        chain=tuple(chain),
        evidence=tuple(c.fact() for c in ordered),
        anomalies=tuple(c.text for c in ordered),
    )


def _contended(case: JobCase, fits: tuple[Attribution, ...]) -> Diagnosis:
    fit, tempo = fits[0], case.once(pace.find)
    candidate = fit.candidate
    text = (
        f"{_TITLES.get(candidate.cause, candidate.cause)}: {candidate.text}; steps took "
        f"{fit.effect:.0%} longer while it lasted ({fit.explained:.0%} of the slow time)."
    )
    links = wording.linked(candidate.anomalies[:6])
    links += [
        anomaly.link("intermediate")
        for other in fits[1:3]
        for anomaly in other.candidate.anomalies[:2]
    ]
    return Diagnosis(
        outcome="found",
        cause=candidate.cause,
        root_cause=text,
        confidence=0.82,
        weight=0.82 if tempo.regressed else 0.5,
        passed=fit.recovered,
        onset=candidate.at,
        culprits=candidate.culprits,
        chain=(*links, slow_link(case, fit)),
        evidence=tuple(a.fact() for a in candidate.anomalies),
        anomalies=tuple(a.text for other in fits for a in other.candidate.anomalies[:4]),
    )


def _unexplained(case: JobCase, tempo: pace.StepPace) -> Diagnosis:
    spell = max((one for one in tempo.spells if one.risen), key=lambda one: one.factor)
    how = "grew slowly" if spell.gradual else "rose"
    text = (
        f"Throughput regression of unknown cause: the step time {how} to {spell.factor:.2f} times "
        "its best level, and no source of contention on the checklist explains it."
    )
    return Diagnosis(
        outcome="found",
        cause="slow-unexplained",
        root_cause=text,
        confidence=0.5,
        weight=0.4,
        onset=spell.start,
        chain=(
            Link(role="root", text="unknown", at=spell.start, uncertainty=spell.uncertainty),
            slow_link(case),
        ),
    )


def _routing(case: JobCase, curve: Curve) -> Diagnosis:
    text = f"Expert routing shifted: {curve.text}; no effect on the step time is seen."
    return Diagnosis(
        outcome="found",
        cause="moe-shift",
        root_cause=text,
        confidence=0.7,
        weight=0.45,
        onset=curve.at,
        chain=(curve.link("root"),),
        evidence=(curve.fact(),),
        anomalies=(curve.text,),
    )


_TITLES = {
    "cpu-contention": "CPU contention",
    "io-contention": "Storage contention",
    "memory-pressure": "Memory pressure",
    "moe-shift": "Expert routing shifted",
    "loss-nan": "The loss is NaN or infinite",
    "grad-nan": "Gradients are NaN or infinite",
}


def _facts(case: JobCase) -> tuple[Figure, ...]:
    tempo, facts = case.once(pace.find), []
    if tempo.known:
        facts.append(
            Figure(
                text=f"step time: {tempo.best:.3g} s at its best lasting level, "
                f"{tempo.worst:.2f} times that at the worst, checkpoints left out",
                metric=tempo.metric,
                promql=tempo.promql,
                value=tempo.best,
                unit="s",
            )
        )
    loss = case.view.panel("train.loss")
    if not loss.empty:
        values = stats.finite(loss.values)
        known = values[np.isfinite(values)]
        if known.size:
            text = f"loss from {known[0]:.4g} to {known[-1]:.4g}"
            facts.append(loss.figure(text, float(known[-1])))
    if case.checkpoints:
        facts.append(
            Figure(text=f"{len(case.checkpoints)} checkpoints recognised and left out "
                 f"(by {case.checkpoints[0].by})", promql=tempo.promql)
        )  # fmt: skip
    return tuple(facts)


def _checklist(case: JobCase) -> FigureTable:
    """Every source of contention, and what was seen there."""
    pressures = (*case.once(pressure.find), *case.once(pressure.beside))

    def seen(domain: str, *more: str) -> str:
        own = [one.text for one in pressures if one.domain == domain]
        return listed([*more, *own], 4) or "quiet"

    ports = case.once(rdma.find)
    hot = (*case.once(drift.hot), *case.once(drift.clocks))
    errors = [fault for fault in case.once(faults.find) if fault.severity != "note"]
    curves = case.once(learning.find)
    rows = [
        ("CPU", seen("cpu")),
        ("Network (TCP)", _tcp(case, seen("tcp"))),
        ("Network (RDMA)", listed([f"{p.unit} of {p.host}: {', '.join(p.kinds)}" for p in ports], 3)
         or "quiet"),
        ("Storage I/O", seen("storage")),
        ("Memory", seen("memory", *_memory(case))),
        ("GPU thermal", listed([one.text for one in hot], 2) or "quiet"),
        ("GPU hardware", listed([fault.text for fault in errors], 2) or "quiet"),
        ("Training", listed([curve.text for curve in curves], 3) or "quiet"),
    ]  # fmt: skip
    return FigureTable(title="Contention checklist", columns=("Source", "Seen"), rows=tuple(rows))


def _tcp(case: JobCase, seen: str) -> str:
    """If RDMA carries the collectives, TCP slows no step, whatever it shows."""
    if sockets.carry(case):
        return listed([one.text for one in case.once(sockets.find)], 3) or seen
    return "does not carry the collectives" + ("" if seen == "quiet" else f": {seen}")


def _memory(case: JobCase) -> list[str]:
    """Hosts that came near to their limit, and kills."""
    found = []
    for one in case.once(usage.find):
        with np.errstate(divide="ignore", invalid="ignore"):
            share = float(stats.largest(one.used / one.limit))
        if one.scarce and CONTAINER_FULL.crossed(share):
            found.append(f"{one.host}: up to {share:.0%} of its memory used")
    kills = case.view.panel("mem.oom")
    for row, rises in zip(kills.rows, faults.growth(case, kills), strict=True):
        if (count := float(np.nansum(rises))) >= 1:
            found.append(f"{row.host}: {count:.0f} OOM kills")
    return found


def _next_steps(cause: str) -> tuple[str, ...]:
    return {
        "cpu-contention": ("Look at what runs on the named hosts beside the job.",
                           "If the level is up on all hosts since a restore, suspect threads that "
                           "communicators left behind."),
        "io-contention": ("Check the storage that the named hosts read from and write to.",),
        "moe-shift": ("Check the load-balance loss weight and the router's inputs at that step.",
                      "Look at the data that was read just before."),
        "lr-jump": ("Check the learning-rate schedule against the configuration.",
                    "Restart from the last checkpoint before the jump."),
        "slow-unexplained": ("Compare with an earlier job: `ray-sentinel compare`.",
                             "Profile a few steps before and after the change."),
    }.get(
        cause,
        (
            "Restart from the last checkpoint before the onset, without that data or at a lower "
            "learning rate.",
            "Check the batch that was read at that step.",
        ),
    )  # fmt: skip

"""Host out of memory: how memory use grew, what used it, and what was killed."""

from __future__ import annotations

import numpy as np

from ray_sentinel.diagnose import stats, wording
from ray_sentinel.diagnose import stop as stops
from ray_sentinel.diagnose.anomaly import Anomaly
from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.detect import memory, series_end, usage
from ray_sentinel.diagnose.detect.memory import HostMemory
from ray_sentinel.diagnose.panel import listed
from ray_sentinel.model.diagnosis import CauseLocation, Diagnosis, Figure, FigureTable, Link
from ray_sentinel.model.thresholds import MEMORY_NEAR

NAME = "host-oom"
ANALYSIS = "oom"
ALIASES: tuple[str, ...] = ("oom-host", "memory", "3")
TITLE = "Host out of memory"
SLOWING: frozenset[str] = frozenset()

TOGETHER_SECONDS = 180.0
"""Seconds after the first kill within which hosts count as killed together with it."""
BESIDE_SECONDS = 300.0
"""Seconds before a kill in which anything else unusual belongs to its story."""
UNUSUAL = 2.0
"""How many times its usual level something must exceed to be unusual."""
STILL_GROWING = 0.2
"""Share of the growth up to the peak that must go on lately in a leak: what is filled once (caches,
buffers) does not grow on."""


def applies(case: JobCase) -> float:
    """Whether memory is recorded, or a process was killed for lack of it."""
    return 0.6 if case.view.has("mem.oom") or case.once(usage.find) else 0.0


def run(case: JobCase) -> Diagnosis:
    """How memory grew until the kill, or how close it came to one."""
    kills, hosts = case.once(memory.kills), case.once(memory.find)
    if kills:
        return _killed(case, kills, hosts)
    scarce = [one for one in hosts if one.scarce]
    near = [one for one in scarce if MEMORY_NEAR.crossed(one.size) and np.isfinite(one.limit)]
    stop = case.once(stops.find)
    if near and (stop is not None or _died_full(case, near)):
        return _suspected(case, near)
    leaking = [one for one in scarce if one.shape == "ramp" and _soon_full(one)]
    if leaking:
        return _leaking(case, leaking)
    if not hosts:
        text = "Host memory is not recorded, and no OOM kill was counted."
        return wording.plain("not-this", "no-data", text, 0.5)
    top = hosts[0]
    text = (
        f"No host ran out of memory: no OOM kill, and at most {top.size:.0%} of the limit "
        f"used ({top.host})."
    )
    return wording.plain("not-this", "none", text, 0.92)


def _died_full(case: JobCase, near: list[HostMemory]) -> bool:
    """The data of the job end while memory is at its peak."""
    return any(case.line.end - one.peak_at <= 4 * case.cell for one in near)


def _soon_full(one: HostMemory) -> bool:
    """A ramp that still goes on, and reaches the limit within a day."""
    rate = one.lately_per_hour
    return rate > STILL_GROWING * one.per_hour and (1.0 - one.size) / rate < 24.0


def _killed(case: JobCase, kills: dict[str, Anomaly], hosts: tuple[HostMemory, ...]) -> Diagnosis:
    first = min(kill.at for kill in kills.values())
    named = sorted(host for host, kill in kills.items() if kill.at <= first + TOGETHER_SECONDS)
    known = {one.host: one for one in hosts}
    own = [known[host] for host in named if host in known]
    cause, why = _why(case, named, own)
    text = f"Host out of memory on {listed(named)}: {why}."
    anomalies = sorted((one for one in own if one.shape != "flat"), key=lambda one: one.at)
    chain = wording.linked(anomalies)
    chain += [kills[host].link("intermediate" if chain else "root") for host in named]
    chain += _stop_link(case, first)
    facts = (
        *(a.fact() for a in anomalies),
        *(kills[host].fact() for host in named),
        *_beside(case, named, first),
    )
    return _answer(case, cause, text, 0.95, 0.97, named, own, tuple(chain), facts)


def _beside(case: JobCase, named: list[str], at: float) -> tuple[Figure, ...]:
    """Storage and GPU memory of the named hosts in the minutes before, where they were unusual."""
    near = (case.times >= at - BESIDE_SECONDS) & (case.times <= at + case.cell)
    found = []
    for key, least in (("io.dirty", 1e9), ("io.writeback", 1e9), ("io.full", 5.0),
                       ("host.procs_blocked", 3.0), ("gpu.vram_used", 1e9)):  # fmt: skip
        panel = case.view.panel(key)
        for row, values in zip(panel.rows, panel.values, strict=True):
            if row.host not in named or not near.any() or near.all():
                continue
            peak, usual = float(stats.largest(values[near])), stats.middle(values[~near])
            if not peak > max(least, UNUSUAL * usual):
                continue
            unit = panel.quantity.unit
            said = [wording.size(one) if unit == "B" else f"{one:.0f} {unit}".strip()
                    for one in (peak, usual)]  # fmt: skip
            text = f"{row.title}: {panel.quantity.title} up to {said[0]} (usually {said[1]})"
            found.append(Anomaly.of_row(panel, row, f"host.{key}", text, 0, peak).fact())
    return tuple(found[:12])


def _why(case: JobCase, named: list[str], own: list[HostMemory]) -> tuple[str, str]:
    shapes = [one.shape for one in own]
    if not shapes:
        return "oom", "memory itself is not recorded"
    shape = max(set(shapes), key=shapes.count)
    whole = len(named) >= max(2, 0.8 * len(case.hosts))
    at_save = any(_in_checkpoint(case, one.peak_at) for one in own)
    if shape == "ramp":
        rate = max(one.per_hour for one in own)
        return "memory-leak", (
            f"memory grew steadily, by {rate:.1%} of the limit per hour: a leak (data pipeline "
            "buffers, Python objects, a compilation cache)"
        )
    if shape == "periodic" or at_save:
        who = "on some hosts only, as where one replica writes" if not whole else "on all hosts"
        return "checkpoint-memory", (
            f"memory peaks with each checkpoint save, {who}, and one peak passed the limit"
        )
    if shape == "spike":
        source = "data loading or a recompilation" if whole else "a load on this host alone"
        return "memory-spike", f"memory jumped within minutes: {source}"
    return "oom", "memory was near the limit all the time"


def _in_checkpoint(case: JobCase, at: float) -> bool:
    slack = 2 * case.cell + 30.0
    return any(one.start - slack <= at <= one.end + slack for one in case.checkpoints)


def _suspected(case: JobCase, near: list[HostMemory]) -> Diagnosis:
    named = [one.host for one in near]
    cause, why = _why(case, named, near)
    text = f"Probably out of memory on {listed(named)} (no kill was counted): {why}."
    anomalies = sorted(near, key=lambda one: one.at)
    chain = wording.linked(anomalies)
    chain += _stop_link(case, anomalies[0].at)
    # A host that vanished with its memory full most likely ran out of it.
    gone = {one.host: one.at for one in case.once(series_end.hosts)}
    died = any(abs(gone.get(one.host, -1e18) - one.peak_at) <= TOGETHER_SECONDS for one in near)
    facts = tuple(anomaly.fact() for anomaly in anomalies)
    return _answer(case, cause, text, 0.7, 0.9 if died else 0.78, named, near, tuple(chain), facts)


def _leaking(case: JobCase, leaking: list[HostMemory]) -> Diagnosis:
    named = [one.host for one in leaking]
    worst = max(leaking, key=lambda one: one.lately_per_hour)
    hours = (1.0 - worst.size) / worst.lately_per_hour
    text = (
        f"A memory leak on {listed(named)}: {worst.lately_per_hour:.1%} of the limit per hour; at "
        f"this rate {worst.host} is full in {hours:.1f} h."
    )
    chain, facts = tuple(wording.linked(leaking)), tuple(one.fact() for one in leaking)
    return _answer(case, "memory-leak", text, 0.7, 0.45, named, leaking, chain, facts)


def _stop_link(case: JobCase, first: float) -> list[Link]:
    stop = case.once(stops.find)
    if stop is None or stop.end < first:
        return []
    return [wording.job_stops(case, stop, max(stop.at, first))]


def _answer(
    case: JobCase, cause: str, text: str, confidence: float, weight: float, named: list[str],
    own: list[HostMemory], chain: tuple[Link, ...], facts: tuple[Figure, ...],
) -> Diagnosis:  # fmt: skip
    known = {one.host: one for one in own}
    return Diagnosis(
        outcome="found",
        cause=cause,
        root_cause=text,
        confidence=confidence,
        weight=weight,
        ended_job=any(link.role == "symptom" for link in chain),
        onset=chain[0].at if chain else None,
        culprits=tuple(
            CauseLocation(host=host, reason=known[host].text if host in known else "OOM kill")
            for host in named
        ),
        chain=chain,
        evidence=facts,
        tables=(_table(case),),
        anomalies=tuple(fact.text for fact in facts),
        next_steps=_next_steps(cause),
    )


def _table(case: JobCase) -> FigureTable:
    rows = [
        (one.host, one.shape, f"{one.start_share:.0%}", f"{one.size:.0%}",
         f"{one.per_hour:+.1%}/h" if one.shape == "ramp" else "-", f"{one.kills:.0f}")
        for one in case.once(memory.find)[:24]
    ]  # fmt: skip
    return FigureTable(
        title="Host memory",
        columns=("Host", "Shape", "At the start", "Peak", "Growth", "OOM kills"),
        rows=tuple(rows),
        promql=next((one.panel.promql() for one in case.once(usage.find)), ""),
    )


def _next_steps(cause: str) -> tuple[str, ...]:
    if cause == "memory-leak":
        return ("Find what grows: data loader workers, caches, Python objects of the named hosts.",
                "Until then restart from a checkpoint before the limit is reached.")  # fmt: skip
    if cause == "checkpoint-memory":
        return ("Shard or stagger the checkpoint save, or lower what it copies to host memory.",
                "Give the writing hosts more memory.")  # fmt: skip
    return ("Find what was allocated in those minutes: data loading, recompilation, evaluation.",)

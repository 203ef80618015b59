"""Heartbeat timeout: were the accused tasks alive when they were declared dead?

A coordinator that misses heartbeats ends the whole job. The heartbeats stopped one timeout before
that; what the accused hosts did then proves or disproves the accusation.
"""

from __future__ import annotations

import msgspec
import numpy as np

from ray_sentinel.diagnose import stats, wording
from ray_sentinel.diagnose import stop as stops
from ray_sentinel.diagnose.anomaly import Anomaly
from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.detect import faults, idle_onset, levels, memory, rdma, series_end
from ray_sentinel.diagnose.panel import SeriesPanel, listed
from ray_sentinel.diagnose.series import Bools, Floats
from ray_sentinel.model.diagnosis import CauseLocation, Diagnosis, Figure, FigureTable, Link
from ray_sentinel.model.thresholds import DIRTY_PAGES, IO_WAITS, TCP_REFUSED, TCP_SPIKE

NAME = "heartbeat-false-positive"
ANALYSIS = "heartbeat"
ALIASES: tuple[str, ...] = ("heartbeat-timeout", "2")
TITLE = "Heartbeat timeout"
SLOWING: frozenset[str] = frozenset()

DEFAULT_TIMEOUT = 100.0
"""JAX's own default of the heartbeat timeout, in seconds."""
AROUND = 90.0
"""Seconds that are looked at before and after the moment at which the heartbeats stopped."""
ABOVE_USUAL = 3.0
"""Times what the host has at other times, checkpoints included, beside the table's limits."""
UNSAID = 0.3
"""How well a heartbeat timeout explains a job of which no log speaks."""


class HeartbeatLoss(msgspec.Struct, frozen=True, kw_only=True):
    """When the job was ended, when the heartbeats stopped, and who was accused."""

    crash: float
    stopped: float
    timeout: float
    accused: tuple[str, ...]
    named: bool
    """Some host was accused by name."""


def applies(case: JobCase) -> float:
    """Whether the log or the user mentions a heartbeat, or neither does and the job ended
    suddenly."""
    if _spoken_of(case):
        return 1.0
    quiet = not case.logs.files
    return UNSAID if quiet and (case.once(idle_onset.first) or _ended_abruptly(case)) else 0.0


def _spoken_of(case: JobCase) -> bool:
    said = case.logs.failure == "heartbeat-timeout"
    return said or bool(case.options.accused or case.options.heartbeat_timeout)


def run(case: JobCase) -> Diagnosis:
    """Whether the accused tasks were alive."""
    if not _spoken_of(case) and case.options.crash_at is None:
        if not case.logs.files and (early := case.once(idle_onset.first)) is not None:
            return _without_logs(case, early)
        if not _ended_abruptly(case):
            text = (
                "Not a heartbeat timeout: nobody speaks of one, and the job did not end abruptly."
            )
            return wording.plain("not-this", "none", text, 0.85)
    return _judged(case)


def _judged(case: JobCase) -> Diagnosis:
    moment = when(case)
    until = min(moment.stopped + AROUND, max(moment.crash - case.cell, moment.stopped + case.cell))
    states = levels.states(case, moment.stopped - case.cell / 2, until)
    own = [one for one in states if one.host in moment.accused]
    if not own:
        text = (
            f"No GPU series of the accused hosts ({listed(moment.accused)}) at the time when the "
            "heartbeats stopped: the accusation can be neither proven nor disproven."
        )
        return wording.plain("unknown", "no-data", text, 0.3)
    idle = _dead(case, moment, own)
    if idle and not moment.named:
        text = (
            f"Not a heartbeat false positive: {listed(idle)} did no work before the job ended, and "
            "nobody speaks of a heartbeat."
        )
        return wording.plain("not-this", "none", text, 0.6)
    if idle:
        text = (
            f"Probably a true heartbeat timeout: {listed(idle)} did no work any more when the "
            "heartbeats stopped. Look for an OOM kill, GPU errors or a crash there."
        )
        return _true(case, moment, own, idle, text, 0.75)
    return _false(case, moment, own)


def _without_logs(case: JobCase, early: idle_onset.Rested) -> Diagnosis:
    """Without any evidence in logs: some hosts went idle first."""
    fatal = any(one.severity == "fatal" for one in case.once(faults.find))
    if fatal or case.once(series_end.hosts) or case.once(memory.kills):
        text = (
            f"{listed(early.hosts)} rested first; a fault, an OOM kill or a lost node explains it."
        )
        return wording.plain("not-this", "none", text, 0.6)
    gap = early.others_at - early.at
    moment = HeartbeatLoss(crash=early.others_at, stopped=early.at + case.cell, timeout=gap,
                    accused=early.hosts, named=False)  # fmt: skip
    own = levels.states(case, moment.stopped, moment.crash)
    text = (
        f"{listed(early.hosts)} did no work any more for {gap:.0f} s before all others rested, "
        "too. No log was collected that tells why; a heartbeat timeout that ended the job was a "
        "true one."
    )
    mine = [one for one in own if one.host in early.hosts]
    return _true(case, moment, mine, list(early.hosts), text, 0.55)


def _ended_abruptly(case: JobCase) -> bool:
    """All GPUs worked to the end and then went idle, or the data end while they work."""
    stop = case.once(stops.find)
    if stop is None or not stop.for_good or case.once(memory.kills) or case.once(series_end.hosts):
        return False
    if any(fault.severity == "fatal" for fault in case.once(faults.find)):
        return False
    near = (case.times >= stop.at - AROUND) & (case.times <= stop.latest + AROUND)
    if case.saving[near].any():
        return False
    tail = levels.states(case, stop.latest + AROUND, stop.end)
    return bool(tail) and all(one.state == "resting" for one in tail)


def when(case: JobCase) -> HeartbeatLoss:
    """When the job was ended: from the options, or else the log, or else the series."""
    options, logs = case.options, case.logs
    crash = options.crash_at if options.crash_at is not None else logs.crash_at
    if crash is None:
        stop = case.once(stops.find)
        crash = stop.latest if stop is not None else case.line.end
    timeout = options.heartbeat_timeout or logs.heartbeat_timeout or DEFAULT_TIMEOUT
    accused = options.accused or logs.accused
    return HeartbeatLoss(
        crash=crash,
        stopped=crash - timeout,
        timeout=timeout,
        accused=accused or case.hosts,
        named=bool(accused),
    )


def _dead(case: JobCase, moment: HeartbeatLoss, own: list[levels.StalledGpu]) -> list[str]:
    """Accused hosts that did not work when their heartbeats stopped."""
    gone = {
        one.host
        for one in case.once(series_end.hosts)
        if one.host in moment.accused and one.at <= moment.stopped + AROUND
    }
    for host in moment.accused:
        states = [one.state for one in own if one.host == host]
        if not states or sum(state in {"resting", "gone"} for state in states) > len(states) / 2:
            gone.add(host)
    if not case.checkpoint_cells[case.cell_of(moment.stopped)]:
        return sorted(gone)
    # During a checkpoint all are idle: only hosts that have really gone are dead.
    return sorted({one.host for one in case.once(series_end.hosts)} & gone)


def _true(
    case: JobCase, moment: HeartbeatLoss, own: list[levels.StalledGpu], dead: list[str], text: str,
    confidence: float,
) -> Diagnosis:  # fmt: skip
    chain = (
        Link(role="root", text=f"{listed(dead)} stopped working", at=moment.stopped,
             uncertainty=AROUND, host=dead[0]),
        _crash_link(moment),
    )  # fmt: skip
    culprits = tuple(
        CauseLocation(host=host, reason="no work at the heartbeat's stop") for host in dead
    )
    return _answer(case, moment, own, "heartbeat-true", text, confidence, chain, culprits, ())


def _false(case: JobCase, moment: HeartbeatLoss, own: list[levels.StalledGpu]) -> Diagnosis:
    network, storage = _network(case, moment), _storage(case, moment)
    busy = [one.utilisation for one in own if np.isfinite(one.utilisation)]
    use = f" (GPU utilisation {np.median(busy):.0f} %)" if busy else ""
    alive = f"the accused hosts ({listed(moment.accused)}) were alive and training{use}"
    if network and (not storage or network[0].at <= storage[0].at):
        cause, found = "heartbeat-network", network
        text = (
            f"A heartbeat false positive, likely set off by the network: {alive}; {found[0].text} "
            "when the heartbeats stopped."
        )
    elif storage:
        cause, found = "heartbeat-storage", storage
        text = (
            f"A heartbeat false positive, likely set off by storage: {alive}; {found[0].text} "
            "when the heartbeats stopped, as in a checkpoint's writeback."
        )
    else:
        cause, found = "heartbeat-false-positive", []
        text = (
            f"A heartbeat false positive: {alive} when the heartbeats stopped; {_examined(case)}. "
            "The heartbeat's own channel failed."
        )
    links = wording.linked(found[:4])
    if not links:
        links = [Link(role="root", text="the heartbeat channel failed while the tasks were healthy",
                      at=moment.stopped, uncertainty=AROUND)]  # fmt: skip
    chain = (*links, _crash_link(moment))
    confidence = 0.85 if moment.named else 0.6
    facts = tuple(anomaly.fact() for anomaly in found)
    return _answer(case, moment, own, cause, text, confidence, chain, (), facts)


def _examined(case: JobCase) -> str:
    """What was examined and ruled out, and what is not recorded."""
    sources = (("TCP", ("tcp.retx",)), ("RDMA", ("rdma.retx", "rdma.port")),
               ("I/O pressure", ("io.full",)), ("dirty pages", ("io.dirty",)))  # fmt: skip
    seen = [name for name, keys in sources
            if any(not case.view.panel(key).empty for key in keys)]  # fmt: skip
    unseen = [name for name, _ in sources if name not in seen]
    text = f"{listed(seen)} showed nothing unusual" if seen else ""
    if unseen:
        text += ("; " if text else "") + f"{listed(unseen)} not recorded"
    return text


def _network(case: JobCase, moment: HeartbeatLoss) -> list[Anomaly]:
    found = _spikes(case, moment, "tcp.retx", TCP_SPIKE.limit, "TCP retransmits", moment.accused)
    near = _near(case, moment)
    for port in case.once(rdma.find):
        if (port.cells & near).any():
            found += port.anomalies
    coordinator = (case.options.coordinator,) if case.options.coordinator else case.hosts
    for key, title in (("tcp.listen_drops", "TCP listen drops"), ("tcp.aborts", "TCP aborts")):
        found += _spikes(case, moment, key, TCP_REFUSED.limit, title, coordinator)
    return sorted(found, key=lambda anomaly: anomaly.at)


def _storage(case: JobCase, moment: HeartbeatLoss) -> list[Anomaly]:
    waits, dirty = (
        case.view.panel(key).pick(lambda row: row.host in moment.accused)
        for key in ("io.full", "io.dirty")
    )
    # Far above what the host has otherwise: writeback that storage does not take.
    usual = stats.quantile(dirty.values[:, ~_near(case, moment)], 0.98, axis=1)
    above = np.maximum(DIRTY_PAGES.limit, ABOVE_USUAL * usual)
    found = [
        *_high(case, moment, waits, "I/O pressure", np.full(len(waits.rows), IO_WAITS.limit)),
        *_high(case, moment, dirty, "dirty pages", above),
    ]
    return sorted(found, key=lambda anomaly: anomaly.at)


def _near(case: JobCase, moment: HeartbeatLoss) -> Bools:
    return np.asarray(np.abs(case.times - moment.stopped) <= AROUND)


def _spikes(
    case: JobCase, moment: HeartbeatLoss, key: str, least: float, title: str, hosts: tuple[str, ...]
) -> list[Anomaly]:
    """Rates near the moment that stand above the host's usual ones."""
    panel = case.view.panel(key).pick(lambda row: row.host in hosts)
    usual = stats.quantile(panel.rates()[:, ~_near(case, moment)], 0.9, axis=1)
    return _high(case, moment, panel, title, np.fmax(least, ABOVE_USUAL * usual))


def _high(
    case: JobCase, moment: HeartbeatLoss, panel: SeriesPanel, title: str, limits: Floats
) -> list[Anomaly]:
    """The rows that are above their limits (S,) near the moment, more than once."""
    found, unit = [], "/s" if panel.quantity.kind == "counter" else panel.quantity.unit
    for row, values, limit in zip(panel.rows, panel.levels(), limits, strict=True):
        high = _near(case, moment) & (values > limit)
        if high.sum() >= 2:
            peak, first = float(np.max(values[high])), int(np.argmax(high))
            text = f"{row.host}: {title} up to {wording.amount(peak, unit)}"
            kind = f"host.{panel.quantity.key}"
            found.append(Anomaly.of_row(panel, row, kind, text, first, peak))
    return found


def _crash_link(moment: HeartbeatLoss) -> Link:
    return Link(
        role="symptom",
        text=f"the job is ended, {moment.timeout:.0f} s after the last heartbeat",
        at=moment.crash,
    )


def _answer(
    case: JobCase, moment: HeartbeatLoss, own: list[levels.StalledGpu], cause: str, text: str,
    confidence: float, chain: tuple[Link, ...], culprits: tuple[CauseLocation, ...],
    facts: tuple[Figure, ...],
) -> Diagnosis:  # fmt: skip
    rows = []
    for host in moment.accused:
        states = [one for one in own if one.host == host]
        rows.append((
            host,
            wording.spread([one.utilisation for one in states], "%"),
            wording.spread([one.power for one in states], "W"),
            ", ".join(sorted({one.state for one in states})) or "no data",
        ))  # fmt: skip
    table = FigureTable(
        title="Accused hosts when the heartbeats stopped",
        columns=("Host", "Utilisation", "Power", "Interpretation"),
        rows=tuple(rows[:32]),
        promql=case.promql("gpu.util"),
    )
    use = (
        f"GPU utilisation of {len(moment.accused)} accused hosts at the heartbeats' stop: "
        + wording.spread([one.utilisation for one in own], "%")
    )
    alive = case.view.panel("gpu.util").figure(use, None, at=moment.stopped)
    return Diagnosis(
        outcome="found",
        cause=cause,
        root_cause=text,
        confidence=confidence,
        weight=_weight(case, moment, culprits),
        window=(moment.stopped, moment.crash),
        onset=chain[0].at,
        culprits=culprits,
        chain=chain,
        evidence=(alive, *facts),
        tables=(table,),
        anomalies=tuple(fact.text for fact in facts),
        next_steps=_next_steps(cause),
    )


def _weight(case: JobCase, moment: HeartbeatLoss, culprits: tuple[CauseLocation, ...]) -> float:
    """If neither log nor user mentions a heartbeat, healthy hosts do not explain the end of a
    job."""
    if _spoken_of(case):
        return 0.93
    return UNSAID if culprits or moment.named or case.options.crash_at is not None else 0.0


def _next_steps(cause: str) -> tuple[str, ...]:
    if cause == "heartbeat-true":
        return ("Run the playbooks host-oom and node-hardware-failure on the same job.",
                "Read the kernel log and the ranks' logs of the named hosts.")  # fmt: skip
    steps = ["Raise the heartbeat timeout; the tasks were healthy.",
             "Restart from the last checkpoint on the same nodes."]  # fmt: skip
    if cause == "heartbeat-storage":
        steps.insert(0, "Keep checkpoint writeback from starving the heartbeat's thread.")
    return tuple(steps)

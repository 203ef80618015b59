"""Network health: RDMA ports that lose packets, congestion, links that go down.

Collectives run over RDMA and are synchronous: one bad link slows every step of every rank. TCP
carries checkpoints and control messages; its retransmits alone never slow training and never get a
node excluded.
"""

from __future__ import annotations

import msgspec
import numpy as np

from ray_sentinel.diagnose import stats, wording
from ray_sentinel.diagnose.anomaly import Anomaly
from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.detect import attribution, pace, rdma, sockets
from ray_sentinel.diagnose.detect.attribution import Attribution
from ray_sentinel.diagnose.panel import SeriesPanel, listed
from ray_sentinel.diagnose.slowness import slow_link
from ray_sentinel.model.diagnosis import CauseLocation, Diagnosis, Figure, FigureTable
from ray_sentinel.model.thresholds import (
    NETWORK_ERRORS_OVER_PEERS,
    OVER_PEERS,
    TCP_ABORTS,
    TCP_BACKGROUND,
)

NAME = "network-health"
ANALYSIS = "network-health"
ALIASES: tuple[str, ...] = ("network", "nccl-timeout", "rdma", "6")
TITLE = "Network health"
SLOWING = frozenset({"congestion"})

_KINDS = {
    "rdma.retx": "retransmits",
    "rdma.ack_timeout": "ACK timeouts",
    "rdma.retry_exceeded": "retry exhaustion: packets were lost for good",
    "rdma.cqe_err": "completion errors",
    "rdma.link_downed": "link downs",
    "rdma.port": "a port down",
}
_WHY = {
    1: "retry exhaustion or a link down: packets are lost for good",
    2: "retransmits with errors: the link slows every collective",
    3: "retransmits, congestion or some errors alone",
}
_LOSSES = {"rdma.ack_timeout", "rdma.cqe_err"}
"""Kinds of errors that no port should have: a link or a switch loses packets, or a peer does not
answer."""


def applies(case: JobCase) -> float:
    """Whether any network series are recorded."""
    keys = ("rdma.retx", "rdma.port", "tcp.retx", "rdma.ack_timeout", "net.rx_errors",
            "net.tx_errors")  # fmt: skip
    return 0.6 if any(case.view.has(key) for key in keys) else 0.0


def run(case: JobCase) -> Diagnosis:
    """Bad ports first, with their effect on the steps; congestion; then TCP, which is cleared."""
    answer = _judged(case)
    return msgspec.structs.replace(
        answer,
        evidence=(*answer.evidence, *_tcp_facts(case)),
        tables=_tables(case),
        next_steps=_next_steps(case, answer.cause) if answer.outcome == "found" else (),
    )


def _judged(case: JobCase) -> Diagnosis:
    causes = [fit for fit in case.once(attribution.find) if fit.candidate.domain == "network"]
    root = case.once(attribution.find)[:1]
    ports = case.once(rdma.find)
    if causes and root[0].candidate.domain == "network":
        return _slowed(case, root[0])
    serious = [port for port in ports if port.priority <= 2]
    if serious:
        return _present(case, serious)
    jammed = case.once(rdma.congested)
    if jammed:
        return _congested(case, jammed)
    cards = case.once(cards_with_errors)
    if cards:
        return _cards(case, cards)
    if ports:
        return _mild(case, ports)
    return _clean(case)


def _slowed(case: JobCase, fit: Attribution) -> Diagnosis:
    candidate, tempo = fit.candidate, case.once(pace.find)
    test = (
        "steps were fast again as soon as it ended" if fit.recovered
        else "it lasted to the end, so recovery could not be seen"
    )  # fmt: skip
    kinds = sorted({name for a in candidate.anomalies if (name := _KINDS.get(a.kind))})
    text = (
        f"{candidate.text}{f' ({listed(kinds)})' if kinds else ''} slowed every step by "
        f"{fit.effect:.0%}: it was there in {fit.explained:.0%} of the slow time, and {test}."
    )
    facts = (
        *(anomaly.fact() for anomaly in candidate.anomalies),
        Figure(
            text=f"step time {tempo.best:.2f} s at its best level, {fit.effect:.0%} more while the "
            "trouble lasted",
            metric=tempo.metric,
            promql=tempo.promql,
            value=fit.effect,
            at=candidate.at,
        ),
    )
    return Diagnosis(
        outcome="found",
        cause=candidate.cause,
        root_cause=text,
        confidence=0.9,
        weight=0.86,
        passed=fit.recovered,
        onset=candidate.at,
        culprits=candidate.culprits,
        chain=(*wording.linked(candidate.anomalies), slow_link(case, fit)),
        evidence=facts,
        anomalies=tuple(anomaly.text for anomaly in candidate.anomalies),
    )


def _present(case: JobCase, ports: list[rdma.PortTrouble]) -> Diagnosis:
    where = listed([f"{port.unit} of {port.host}" for port in ports])
    anomalies = sorted((a for port in ports for a in port.anomalies), key=lambda a: a.at)
    priority = min(port.priority for port in ports)
    text = f"RDMA trouble on {where} ({_WHY[priority]}); no effect on the step time is seen."
    return Diagnosis(
        outcome="found",
        cause="rdma-link",
        root_cause=text,
        confidence=0.8,
        weight=0.6 if priority == 1 else 0.5,
        onset=anomalies[0].at,
        culprits=tuple(port.culprit for port in ports),
        chain=tuple(wording.linked(tuple(anomalies))),
        evidence=tuple(anomaly.fact() for anomaly in anomalies),
        anomalies=tuple(anomaly.text for anomaly in anomalies),
    )


def _congested(case: JobCase, jammed: tuple[rdma.PortTrouble, ...]) -> Diagnosis:
    hosts = sorted({port.host for port in jammed})
    anomalies = sorted((a for port in jammed for a in port.anomalies if a.kind == "rdma.cnp"),
                       key=lambda a: a.at)  # fmt: skip
    wide = len(hosts) >= max(2, len(case.hosts) // 2)
    text = (
        f"Congestion notifications on {len(hosts)} of {len(case.hosts)} hosts"
        + (": the fabric, not a node, is congested" if wide else f" ({listed(hosts)})")
        + "; no effect on the step time is seen."
    )
    return Diagnosis(
        outcome="found",
        cause="congestion",
        root_cause=text,
        confidence=0.6,
        weight=0.35,
        onset=anomalies[0].at,
        chain=tuple(wording.linked(tuple(anomalies[:4]))),
        evidence=tuple(anomaly.fact() for anomaly in anomalies[:8]),
        anomalies=tuple(anomaly.text for anomaly in anomalies[:12]),
    )


def _cards(case: JobCase, cards: tuple[Anomaly, ...]) -> Diagnosis:
    where = listed(sorted({f"{card.unit} of {card.host}" for card in cards}))
    text = (
        f"Network cards count errors: {where}. They carry storage and control traffic; no effect "
        "on the step time is seen."
    )
    culprits = {
        (card.host, card.unit): CauseLocation(host=card.host, device=card.unit, reason=card.text)
        for card in cards
    }
    return Diagnosis(
        outcome="found",
        cause="nic-errors",
        root_cause=text,
        confidence=0.65,
        weight=0.38,
        onset=min(card.at for card in cards),
        culprits=tuple(culprits.values()),
        chain=tuple(wording.linked(sorted(cards, key=lambda card: card.at)[:4])),
        evidence=tuple(card.fact() for card in cards[:8]),
        anomalies=tuple(card.text for card in cards[:12]),
    )


def _mild(case: JobCase, ports: tuple[rdma.PortTrouble, ...]) -> Diagnosis:
    where = listed([f"{port.unit} of {port.host}" for port in ports])
    seen = {anomaly.kind for port in ports for anomaly in port.anomalies} & _KINDS.keys()
    what = listed(sorted(_KINDS[kind] for kind in seen))
    text = f"The network is well enough: {what} on {where}, without any effect on the step time."
    if seen & _LOSSES:
        text += " Worth a look: a link or a switch on the way loses packets."
    facts = tuple(a.fact() for port in ports for a in port.anomalies)
    return Diagnosis(
        outcome="healthy",
        cause="none",
        root_cause=text,
        confidence=0.7,
        evidence=facts,
        anomalies=tuple(fact.text for fact in facts),
    )


def _clean(case: JobCase) -> Diagnosis:
    seen = not case.view.panel("rdma.retx").empty or not case.view.panel("rdma.port").empty
    if not seen:
        text = "No RDMA series: the collectives' network can neither be cleared nor blamed."
        return wording.plain("unknown", "no-data", text, 0.3)
    text = f"The network is healthy: {_counts(case)}."
    if any(fact.unit for fact in _tcp_facts(case)):
        text += " TCP retransmits alone do not slow collectives."
    return wording.plain("healthy", "none", text, 0.9)


def _counts(case: JobCase) -> str:
    """What the RDMA ports counted during the job, small numbers included."""
    said, quiet = [], []
    for key, one, none in (
        ("rdma.retx", "retransmitted packets", "retransmits"),
        ("rdma.ack_timeout", "ACK timeouts", "ACK timeouts"),
        ("rdma.retry_exceeded", "exhausted retries", "exhausted retries"),
        ("rdma.cnp", "congestion notifications", "congestion notifications"),
    ):
        panel = case.view.panel(key)
        if panel.empty:
            continue
        count = float(np.nansum(panel.increases()))
        if count >= 1:
            said.append(wording.count(count, one))
        else:
            quiet.append(none)
    text = ""
    if said:
        text = f"over all RDMA ports {listed(said)} in the whole job, which is background"
    if quiet:
        text += ("; " if text else "") + f"no {', no '.join(quiet)}"
    port = "" if case.view.panel("rdma.port").empty else "; no port went down"
    return f"{text}{port}"


def _tcp_facts(case: JobCase) -> tuple[Figure, ...]:
    """Hosts with many TCP retransmits outside checkpoints, and with connections that were given up:
    they are reported, and cleared."""
    return (*_retransmits(case), *_aborts(case))


def _aborts(case: JobCase) -> tuple[Figure, ...]:
    panel = case.view.panel("tcp.aborts")
    return tuple(
        panel.figure(
            f"{row.host}: {count:,.0f} {panel.quantity.title} within the job: a peer of its "
            "storage or control traffic did not answer",
            float(count),
            row=row,
        )
        for row, count in zip(panel.rows, np.nansum(panel.increases(), axis=1), strict=True)
        if TCP_ABORTS.crossed(count)
    )[:6]


def _retransmits(case: JobCase) -> tuple[Figure, ...]:
    panel = case.view.panel("tcp.retx")
    if panel.empty:
        return ()
    rates = np.where(case.checkpoint_cells, np.nan, panel.rates())
    high = stats.quantile(rates, 0.95, axis=1)
    return tuple(
        panel.figure(
            f"{row.host}: TCP retransmits up to {peak:,.0f}/s outside checkpoints: storage or "
            "control traffic, not the collectives' path",
            float(peak),
            panel.unit,
            row=row,
        )
        for row, peak in zip(panel.rows, high, strict=True)
        if np.isfinite(peak) and TCP_BACKGROUND.crossed(float(peak))
    )[:6]


def _tables(case: JobCase) -> tuple[FigureTable, ...]:
    """The exclusion list, by priority."""
    rows = [
        (str(port.priority), port.host, port.unit, ", ".join(port.kinds),
         f"{port.peak:,.0f}/s", _WHY[port.priority])
        for port in (*case.once(rdma.find), *(
            port for port in case.once(rdma.congested) if port.kinds == ("cnp",)))
    ]  # fmt: skip
    if not rows:
        return ()
    return (
        FigureTable(
            title="Ports to exclude, by priority (4, TCP only, is never excluded)",
            columns=("Priority", "Host", "Device/port", "Kinds", "Peak retransmits", "Why"),
            rows=tuple(rows[:24]),
            promql=case.promql("rdma.retx"),
        ),
    )


def _next_steps(case: JobCase, cause: str) -> tuple[str, ...]:
    if cause == "congestion":
        return ("Have the fabric's switches checked: ECN and PFC settings, oversubscribed links.",
                "Look for other jobs on the same leaf switches at that time.")  # fmt: skip
    if cause in {"tcp-retransmits", "nic-errors"} and sockets.carry(case):
        return ("Check cable, transceiver, switch port and driver of the named hosts' interfaces.",
                "Exclude the named hosts where spare nodes allow it: the collectives run over TCP.",
                "See whether NCCL should have found RDMA (NCCL_IB_DISABLE, NCCL_NET).")  # fmt: skip
    if cause == "nic-errors":
        return ("Check cable, transceiver and driver of the named network cards.",
                "Do not exclude the node for them while its RDMA ports are clean.")  # fmt: skip
    return ("Check cable, transceiver and switch port of the named devices.",
            "Exclude nodes of priority 1, then 2, where spare nodes allow it.",
            "Do not exclude nodes for TCP retransmits.")  # fmt: skip


# Errors that a host's network cards count: bad frames, checksums, aborted transmissions.
#
# These cards carry storage and control traffic (and RoCE's own errors show in the RDMA counters):
# they name a card or cable to look at, and are no cause of slow steps by themselves.


def cards_with_errors(case: JobCase) -> tuple[Anomaly, ...]:
    """Cards whose errors went on for minutes and clearly exceed the others', the worst first."""
    found = [
        anomaly
        for key in ("net.rx_errors", "net.tx_errors")
        for anomaly in _cards_with_errors(case, case.view.panel(key), key)
    ]
    return tuple(sorted(found, key=lambda anomaly: -anomaly.size))


def _cards_with_errors(case: JobCase, panel: SeriesPanel, key: str) -> list[Anomaly]:
    if panel.empty:
        return []
    grown = panel.increases()
    totals = np.nansum(grown, axis=1)
    limit = NETWORK_ERRORS_OVER_PEERS
    least = max(limit.limit, OVER_PEERS * stats.background(totals))
    found = []
    for row, rises, total in zip(panel.rows, grown, totals, strict=True):
        cells = np.flatnonzero(rises > 0)
        if total < least or case.times[cells[-1]] - case.times[cells[0]] < limit.seconds:
            continue
        count = f"{total:,.0f} {panel.quantity.title}"
        text = f"{row.unit} of {row.host}: {count} within the job"
        kind, first = key.replace("_", "-"), int(cells[0])
        found.append(Anomaly.of_row(panel, row, kind, text, first, float(total)))
    return found

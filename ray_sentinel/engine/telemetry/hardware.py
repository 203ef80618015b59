"""Telemetry as evidence in a case: devices and ports beside ranks.

What began before the job stopped may be its cause; what began after may be its effect (GPUs that
idle, connections that time out), and is distinguished. A device's fault counts against the rank
that has the device. If no rank stands out, and a device or a port was broken before the stop, it is
itself named.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ray_sentinel.engine.incidents.case import Case
from ray_sentinel.engine.ranks import RankView
from ray_sentinel.engine.verdicts.judgement import EvidenceScores, Judgement
from ray_sentinel.model.alert import Alert
from ray_sentinel.model.fault_kinds import KINDS
from ray_sentinel.model.incident import Culprit, EvidenceItem, FaultKind, Verdict

SOURCE = "telemetry"
WEIGHTS: Mapping[FaultKind, float] = {"device-lost": 4.0, "device-stuck": 3.0}
"""Weights against the rank whose device has the fault."""
BEFORE = 15.0
"""Seconds after the last movement within which a cause may still come to light: collectors look
every ten seconds or so."""
LONG_BEFORE = 600.0
"""Seconds before the stop beyond which a fault is no cause: it has had its effect by then, or has
none."""
NAMED: tuple[FaultKind, ...] = ("device-lost", "device-stuck", "network")
"""Kinds that have a culprit of their own, the surest first."""
CONFIDENCE = 0.6
"""The confidence of a verdict that rests on telemetry alone."""
MOST_TOLD = 12
"""Most alerts in one verdict's evidence."""


def came_first(case: Case, alert: Alert) -> bool:
    """Whether the alert began before the job stopped, but not long before."""
    stop = case.job.moved_at()
    return stop - LONG_BEFORE <= alert.since <= stop + BEFORE


def weigh_alerts(case: Case, scores: EvidenceScores, by_rank: Mapping[int, RankView]) -> None:
    """Add the telemetry's evidence to the scores: against ranks, or as context."""
    stop = case.job.moved_at()
    for alert in case.alerts[:MOST_TOLD]:
        first = came_first(case, alert)
        apart = abs(alert.since - stop)
        when = f"{apart:.0f} s {'before' if alert.since <= stop else 'after'} the job stopped"
        text = f"{alert.place or alert.job}: {alert.text} (began {when})"
        weight = WEIGHTS.get(alert.kind, 0.0) if first else 0.0
        views = [view for rank in alert.ranks if (view := by_rank.get(rank)) is not None]
        if weight and views:
            for view in views:
                number = view.rank.id.rank
                item = EvidenceItem(source=SOURCE, text=text, rank=number, weight=weight)
                scores.put(view.rank.process, item)
        else:
            scores.note(SOURCE, text)


def device_kind(case: Case, rank: int) -> FaultKind | None:
    """The kind of fault of a rank's device, if telemetry shows one that began before the stop."""
    kinds = [a.kind for a in case.alerts if rank in a.ranks and came_first(case, a)]
    return next((kind for kind in NAMED if kind in kinds), None)


def blame_hardware(judgement: Judgement, case: Case) -> Judgement:
    """The judgement, naming a device or a port if it names nobody and one was broken before the
    stop."""
    verdict = judgement.verdict
    if verdict.kind != "unknown" or verdict.culprits or judgement.decision == "dismiss":
        return judgement
    for kind in NAMED:
        found = [alert for alert in case.alerts if alert.kind == kind and came_first(case, alert)]
        hosts = {alert.host for alert in found}
        if found and len(hosts) == 1:
            return msgspec.structs.replace(judgement, verdict=_named(judgement, kind, found))
    return judgement


def _named(judgement: Judgement, kind: FaultKind, found: list[Alert]) -> Verdict:
    culprits = tuple(
        Culprit(
            rank=alert.ranks[0] if len(alert.ranks) == 1 else None,
            host=alert.host,
            pid=None,
            gpu=alert.gpu,
            reason=f"{alert.port}: {alert.text}" if alert.port else alert.text,
        )
        for alert in found
    )
    places = " and ".join(dict.fromkeys(alert.place for alert in found))
    lines = tuple(
        EvidenceItem(source=SOURCE, text=f"{alert.place}: {alert.text}", at=alert.since)
        for alert in found
    )
    return msgspec.structs.replace(
        judgement.verdict,
        kind=kind,
        summary=f"{places} {KINDS[kind].phrase}: {found[0].text}",
        culprits=culprits,
        confidence=CONFIDENCE,
        evidence=(*lines, *judgement.verdict.evidence),
        next_steps=KINDS[kind].next_steps,
    )

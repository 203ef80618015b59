"""Incidents as notifications: each of their states is sent once. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from ray_sentinel.model.incident import Incident, IncidentState, notified
from ray_sentinel.supervise.notify.notices import Notice

STATES = ("confirmed", "explained", "resolved")
"""The states that are reported by default: the outcome of a suspicion, not the suspicion itself."""


def key_of(incident: Incident) -> str:
    """A key that is equal for one state of one incident. It differs if an earlier deployment kept
    its files elsewhere and gave the same number."""
    return f"{incident.id}@{incident.suspected_at:.3f}:{incident.state}"


def notice_of(incident: Incident, details: dict[str, Any]) -> Notice:
    """One state of an incident; ``details`` is what ``incidents --json`` shows of it."""
    verdict = incident.verdict
    return Notice(
        key=key_of(incident),
        event=incident.state,
        job=incident.job,
        text=verdict.summary if verdict is not None else incident.summary,
        time=max((change.at for change in incident.history), default=incident.suspected_at),
        host=verdict.culprits[0].host if verdict is not None and verdict.culprits else "",
        details=details,
    )


def keys_of_past(incident: Incident) -> list[str]:
    """The keys of all states that it has been through."""
    past = {change.state for change in incident.history} | {incident.state}
    return [key_of(msgspec.structs.replace(incident, state=state)) for state in sorted(past)]


def undelivered(incident: Incident, since: float) -> tuple[IncidentState, ...]:
    """The states that it entered after ``since`` (on the clock of its times) and whose notification
    is not known to have been delivered, in order."""
    told = {(step.what, step.text) for step in incident.milestones}
    late = {change.state: change.at for change in incident.history if change.at >= since}
    return tuple(
        state
        for state in sorted(late, key=late.__getitem__)
        if state in STATES and _step(state) not in told
    )


def _step(state: str) -> tuple[str, str]:
    step = notified(0.0, state)
    return step.what, step.text


def as_of(incident: Incident, state: IncidentState) -> Incident:
    """The incident as it was when it entered ``state``, except for what was found since."""
    at = max(change.at for change in incident.history if change.state == state)
    return msgspec.structs.replace(
        incident,
        state=state,
        history=tuple(change for change in incident.history if change.at <= at),
        resolved_at=incident.resolved_at if state == "resolved" else None,
    )

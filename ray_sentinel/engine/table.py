"""The life of an incident as data, and the only function that moves it along."""

from __future__ import annotations

import msgspec

from ray_sentinel.errors import InvalidTransitionError
from ray_sentinel.model.incident import Incident, IncidentState, Transition

TRANSITIONS: dict[IncidentState, frozenset[IncidentState]] = {
    "suspected": frozenset({"confirmed", "dismissed"}),
    "confirmed": frozenset({"captured", "resolved"}),
    "captured": frozenset({"explained", "resolved"}),
    # A second capture while the hang lasts goes back to captured.
    "explained": frozenset({"captured", "resolved"}),
    "resolved": frozenset(),
    "dismissed": frozenset(),
}

OPEN: frozenset[IncidentState] = frozenset({"suspected", "confirmed", "captured", "explained"})
CONFIRMED: frozenset[IncidentState] = frozenset({"confirmed", "captured", "explained"})


def advance(incident: Incident, state: IncidentState, at: float, why: str = "") -> Incident:
    """The incident in its new state, the change added to its history.

    Raises InvalidTransitionError, and changes nothing, where the table has no such step.
    """
    if state not in TRANSITIONS[incident.state]:
        story = tuple(f"{step.state} ({step.why})" for step in incident.history)
        raise InvalidTransitionError(incident.id, incident.state, state, story)
    return msgspec.structs.replace(
        incident,
        state=state,
        confirmed_at=at if state == "confirmed" else incident.confirmed_at,
        resolved_at=at if state in ("resolved", "dismissed") else incident.resolved_at,
        history=(*incident.history, Transition(at, state, why)),
    )

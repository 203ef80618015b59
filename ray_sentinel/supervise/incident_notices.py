"""Incidents as notices: each of their states is told once. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from ray_sentinel.model.incident import Incident
from ray_sentinel.supervise.notices import Notice

STATES = ("confirmed", "explained", "resolved")
"""What is told where nothing else is asked for: what came of a suspicion, not the suspicion."""


def key_of(incident: Incident) -> str:
    """Equal for one state of one incident, also where an earlier deployment kept its files
    elsewhere and gave the same number."""
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
    """Of all states that it has been through."""
    past = {change.state for change in incident.history} | {incident.state}
    return [key_of(msgspec.structs.replace(incident, state=state)) for state in sorted(past)]

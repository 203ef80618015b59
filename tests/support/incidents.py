"""Incidents, where a test cares for one or two of their fields."""

from __future__ import annotations

from typing import Any

from ray_sentinel.model.incident import Incident


def an_incident(**fields: Any) -> Incident:
    """A rank held its GIL, and it is confirmed, unless ``fields`` say otherwise."""
    usual: dict[str, Any] = {
        "id": "1",
        "job": "j",
        "attempt": 0,
        "kind": "gil-held",
        "severity": "critical",
        "state": "confirmed",
        "summary": "s",
        "rule": "r",
        "suspected_at": 1.0,
    }
    return Incident(**{**usual, **fields})

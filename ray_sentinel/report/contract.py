"""An incident as programs read it: the fields that ``incidents --json`` promises, and the rest."""

from __future__ import annotations

from typing import Any

import msgspec

from ray_sentinel.model.incident import Incident


def incident_dict(incident: Incident) -> dict[str, Any]:
    """Plain data: the whole record, with ``culprits``, ``confidence`` and ``evidence`` on top.

    ``culprits`` are ``{"rank", "host", "pid", "reason"}``, ``confidence`` is 0..1 (None before
    there is a verdict), ``evidence`` are ``{"source", "text", "rank", "weight", "at"}``; times are
    Unix seconds.
    """
    plain: dict[str, Any] = msgspec.to_builtins(incident)
    verdict = plain.get("verdict") or {}
    plain["culprits"] = verdict.get("culprits", [])
    plain["confidence"] = verdict.get("confidence")
    plain["evidence"] = verdict.get("evidence", [])
    return plain


def incident_json(incident: Incident) -> bytes:
    """``incident.json``: the same, indented. Reads back as an ``Incident``."""
    return msgspec.json.format(msgspec.json.encode(incident_dict(incident)), indent=2) + b"\n"

"""An incident as programs read it: the fields that ``incidents --json`` promises, and the rest."""

from __future__ import annotations

from typing import Any

import msgspec

from ray_sentinel.model.diagnosis import Diagnosis
from ray_sentinel.model.incident import Incident

SERIES_KEYS = ("analysis", "outcome", "cause", "root_cause", "confidence", "culprits")


def incident_dict(incident: Incident, diagnosis: Diagnosis | None = None) -> dict[str, Any]:
    """Plain data: the whole record, with ``culprits``, ``chain``, ``confidence`` and ``evidence``
    on top, and as ``diagnosis`` what the job's time series say, where they were asked.

    ``culprits`` are ``{"rank", "host", "pid", "reason"}``; those of jobs of actors have ``role``,
    ``actor`` and ``method`` too, and ``rank`` only where there is one. ``chain`` are ``{"from",
    "to", "how", "since", "witness"}``, ``confidence`` is 0..1 (None before there is a verdict),
    ``evidence`` are ``{"source", "text", "rank", "weight", "at"}``; times are Unix seconds.
    """
    plain: dict[str, Any] = msgspec.to_builtins(incident)
    verdict = plain.get("verdict") or {}
    plain["culprits"] = [_culprit(one) for one in verdict.get("culprits", [])]
    plain["chain"] = verdict.get("chain", [])
    plain["confidence"] = verdict.get("confidence")
    plain["evidence"] = verdict.get("evidence", [])
    if diagnosis is not None:
        whole = msgspec.to_builtins(diagnosis)
        plain["diagnosis"] = {key: whole[key] for key in SERIES_KEYS}
    return plain


def _culprit(plain: dict[str, Any]) -> dict[str, Any]:
    if plain["role"]:
        return {key: value for key, value in plain.items() if key != "rank" or value is not None}
    return {key: value for key, value in plain.items() if key not in _OF_RAY_JOBS}


_OF_RAY_JOBS = ("role", "actor", "method")


def incident_json(incident: Incident, diagnosis: Diagnosis | None = None) -> bytes:
    """``incident.json``: the same, indented. Reads back as an ``Incident``."""
    data = msgspec.json.encode(incident_dict(incident, diagnosis))
    return msgspec.json.format(data, indent=2) + b"\n"

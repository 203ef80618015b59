"""Incidents and diagnoses as programs read them: what ``--json`` promises."""

from __future__ import annotations

from typing import Any

import msgspec

from ray_sentinel.model.diagnosis import Diagnosis, DiagnosisReport
from ray_sentinel.model.incident import Incident

SERIES_KEYS = ("analysis", "outcome", "cause", "root_cause", "confidence", "culprits")


def incident_dict(incident: Incident, diagnosis: Diagnosis | None = None) -> dict[str, Any]:
    """Plain data: the whole record, with ``culprits``, ``chain``, ``confidence`` and ``evidence``
    on top, and as ``diagnosis`` the result from the job's time series, if they were examined.

    ``culprits`` are ``{"rank", "host", "pid", "reason"}``; those of jobs of actors have ``role``,
    ``actor`` and ``method`` too, and ``rank`` only where there is one. ``chain`` are ``{"from",
    "to", "how", "since", "witness"}``, ``confidence`` is 0..1 (None before there is a verdict),
    ``evidence`` are ``{"source", "text", "rank", "weight", "at", "proof"}``; times are Unix
    seconds.
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
    """``incident.json``: ``incident_dict`` as indented JSON. Reads back as an ``Incident``."""
    data = msgspec.json.encode(incident_dict(incident, diagnosis))
    return msgspec.json.format(data, indent=2) + b"\n"


def diagnosis_dict(report: DiagnosisReport) -> dict[str, Any]:
    """Plain data: what ``diagnose --json`` promises, the answer first and its basis below.

    Times are Unix seconds, durations seconds.
    """
    answer = _answer(report.diagnosis)
    answer["inventory"] = msgspec.to_builtins(report.inventory)
    answer["triage"] = report.triage
    answer["others"] = [
        {
            key: value
            for key, value in _answer(other).items()
            if key in {"analysis", "playbook", "outcome", "cause", "root_cause", "confidence",
                       "culprits"}
        }
        for other in report.others
    ]  # fmt: skip
    answer["seconds"] = round(report.seconds, 3)
    answer["source_seconds"] = round(report.source_seconds, 3)
    return answer


def _answer(diagnosis: Diagnosis) -> dict[str, Any]:
    """One playbook's answer, without its plots."""
    data: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(diagnosis, plots=()))
    del data["plots"], data["weight"]
    return data

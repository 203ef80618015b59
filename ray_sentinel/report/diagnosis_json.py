"""A diagnosis as plain data: the contract of ``diagnose --json``."""

from __future__ import annotations

from typing import Any

import msgspec

from ray_sentinel.model.diagnosis import Diagnosis, DiagnosisReport


def as_data(report: DiagnosisReport) -> dict[str, Any]:
    """The answer on top, what it rests on below. Times are Unix seconds."""
    answer = answer_data(report.diagnosis)
    answer["inventory"] = msgspec.to_builtins(report.inventory)
    answer["triage"] = report.triage
    answer["others"] = [
        {
            key: value
            for key, value in answer_data(other).items()
            if key in {"analysis", "playbook", "outcome", "cause", "root_cause", "confidence",
                       "culprits"}
        }
        for other in report.others
    ]  # fmt: skip
    answer["seconds"] = round(report.seconds, 3)
    answer["source_seconds"] = round(report.source_seconds, 3)
    return answer


def answer_data(diagnosis: Diagnosis) -> dict[str, Any]:
    """One playbook's answer, without its plots."""
    data: dict[str, Any] = msgspec.to_builtins(
        msgspec.structs.replace(diagnosis, plots=(), tables=())
    )
    data.pop("plots")
    data.pop("weight")
    data["tables"] = [msgspec.to_builtins(table) for table in diagnosis.tables]
    data["window"] = list(diagnosis.window)
    return data

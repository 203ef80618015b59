"""The files of a bundle that are made of the incident itself."""

from __future__ import annotations

from collections.abc import Iterable

from ray_sentinel.model.diagnosis import Diagnosis
from ray_sentinel.model.incident import Incident
from ray_sentinel.report.contract import incident_json
from ray_sentinel.report.html import incident_html
from ray_sentinel.report.incident_markdown import markdown


def rendered(
    incident: Incident, files: Iterable[str] = (), diagnosis: Diagnosis | None = None
) -> dict[str, bytes]:
    """File name → content; ``files`` are the names of what lies beside them in the bundle, and
    ``diagnosis`` is what the job's time series say."""
    return {
        "incident.json": incident_json(incident, diagnosis),
        "report.md": markdown(incident, tuple(sorted(files)), diagnosis).encode(),
        "report.html": incident_html(incident, diagnosis).encode(),
    }

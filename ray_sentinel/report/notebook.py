"""How notebooks show incidents, diagnoses and health. Loading this is enough."""

from __future__ import annotations

from ray_sentinel.model.diagnosis import DiagnosisReport
from ray_sentinel.model.health import Health
from ray_sentinel.model.incident import Incident
from ray_sentinel.model.notebook import html_of, markdown_of
from ray_sentinel.model.status import Status
from ray_sentinel.report import diagnosis_markdown, incident_markdown
from ray_sentinel.report.html import diagnosis_html, framed, health_html, incident_html, status_html

html_of[Incident] = lambda incident: framed(incident_html(incident))
html_of[DiagnosisReport] = lambda report: framed(diagnosis_html(report))
html_of[Health] = lambda told: framed(health_html(told))
html_of[Status] = lambda status: framed(status_html(status))
markdown_of[Incident] = lambda incident: incident_markdown.markdown(incident, folds=False)
markdown_of[DiagnosisReport] = diagnosis_markdown.markdown

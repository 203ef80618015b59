"""For notebooks: incidents and diagnoses as pages, their series as pandas' DataFrames.

from ray_sentinel import notebook

report = notebook.read_incident("incidents/20260131T120000Z-host-stuck-0001")
report                      # a page
report.frames()["step time"].plot()
notebook.diagnose("/jobs/1234")
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

import ray_sentinel.report.notebook  # noqa: F401  records are shown as pages from now on
from ray_sentinel.diagnose.examine import examine
from ray_sentinel.errors import InputError, MissingPartError
from ray_sentinel.model.diagnosis import Diagnosis, DiagnosisReport, Plot
from ray_sentinel.model.incident import Incident
from ray_sentinel.private_files import read_private
from ray_sentinel.report import series
from ray_sentinel.report.html import framed, incident_html
from ray_sentinel.report.incident_markdown import markdown
from ray_sentinel.store.incident_window import MOST_BYTES
from ray_sentinel.store.open import open_source

if TYPE_CHECKING:
    import pandas

RECORD = "incident.json"


class IncidentReport(msgspec.Struct, frozen=True, kw_only=True):
    """An incident's bundle."""

    incident: Incident
    diagnosis: Diagnosis | None = None
    """What the job's time series say; None if that is not known."""

    def frames(self) -> dict[str, pandas.DataFrame]:
        """The series around the incident, as by ``frames``."""
        return frames(self.diagnosis.plots if self.diagnosis is not None else ())

    def _repr_html_(self) -> str:
        return framed(incident_html(self.incident, self.diagnosis))

    def _repr_markdown_(self) -> str:
        return markdown(self.incident, (), self.diagnosis, folds=False)


def read_incident(folder: str | Path) -> IncidentReport:
    """The incident of a bundle. Raises InputError if there is none."""
    place = Path(folder).expanduser()
    try:
        data = read_private(place / RECORD, MOST_BYTES)
        incident = msgspec.json.decode(data, type=Incident)
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{place / RECORD} is no incident: {error}") from None
    files = {}
    for name in (series.FILE, series.PLOTS_FILE):
        if (place / name).is_file():
            files[name] = read_private(place / name, MOST_BYTES)
    return IncidentReport(incident=incident, diagnosis=series.read(files))


def diagnose(source: str | Path) -> DiagnosisReport:
    """What ``ray-sentinel diagnose SOURCE --no-logs`` finds: a job's folder, a history file, or the
    URL of a Prometheus. Raises InputError and UnreachableError as the command does."""
    with open_source(str(source)) as opened:
        return examine(opened.source)


def frames(plots: Iterable[Plot]) -> dict[str, pandas.DataFrame]:
    """Title → a frame with a column for each series, by time in UTC; its ``attrs`` have the unit
    and the query. Raises MissingPartError without pandas."""
    try:
        import pandas
    except ImportError:
        raise MissingPartError("pandas is not installed: pip install pandas") from None
    found = {}
    for plot in plots:
        index = pandas.to_datetime(list(plot.times), unit="s", utc=True)
        frame = pandas.DataFrame(dict(plot.series), index=index)
        frame.attrs = {"unit": plot.unit, "promql": plot.promql}
        found[plot.title] = frame
    return found

"""Reports as self-contained pages: no script, no font, no file beside them.

The pages are Jinja2 templates in ``templates/``. Each text that they show is put on one line,
without control characters, and escaped, wherever it comes from. Jinja2 is loaded at its first use.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ray_sentinel.model.comparison import Comparison
from ray_sentinel.model.diagnosis import Diagnosis, DiagnosisReport
from ray_sentinel.model.health import Health
from ray_sentinel.model.incident import Incident, RankLog
from ray_sentinel.model.status import Status
from ray_sentinel.model.triage import LogLine, Triage
from ray_sentinel.report import series
from ray_sentinel.report.event_strip import event_strip
from ray_sentinel.report.incident_markdown import chain_of, culprit_name, slowed
from ray_sentinel.report.line_plot import line_plot, measured
from ray_sentinel.report.merged_stacks import merged_stacks
from ray_sentinel.report.rank_logs import LINKED, others_title, sources_of, who_wrote
from ray_sentinel.report.timeline import timeline
from ray_sentinel.report.value_strips import value_strips
from ray_sentinel.report.wait_picture import wait_picture
from ray_sentinel.report.words import (
    clock,
    day,
    duration,
    moment,
    percent,
    progress_of,
    since,
    watts,
)
from ray_sentinel.text import clean, one_line

if TYPE_CHECKING:
    from jinja2 import Environment

MOST_CULPRITS = 24
MOST_INCIDENTS = 10
MOST_ROWS = 60
"""Most rows of any other table or list; the JSON file beside the report has the rest."""


def incident_html(incident: Incident, diagnosis: Diagnosis | None = None) -> str:
    """``report.html`` of a bundle. ``diagnosis`` is the result from the job's time series, with its
    plots."""
    return _page(
        "incident",
        incident=incident,
        series=series.lines(diagnosis) if diagnosis is not None else [],
        plots=series.drawn_around(incident, diagnosis) if diagnosis is not None else (),
        accused=diagnosis is not None and bool(diagnosis.culprits),
    )


def diagnosis_html(report: DiagnosisReport) -> str:
    """A diagnosis with its tables and plots."""
    plots = [drawn for plot in report.diagnosis.plots if (drawn := line_plot(plot))]
    return _page(
        "diagnosis",
        report=report,
        diagnosis=report.diagnosis,
        inventory=report.inventory,
        plots=plots,
    )


def comparison_html(comparisons: Sequence[Comparison]) -> str:
    """Jobs against the first of them."""
    drawn = [
        [one for plot in compared.plots if (one := line_plot(plot, over_steps=True))]
        for compared in comparisons
    ]
    return _page("comparison", comparisons=comparisons, plots=drawn)


def health_html(told: Health) -> str:
    """The health of a training, and its nodes."""
    return _page("health", told=told, strips=value_strips(told))


def triage_html(answer: Triage) -> str:
    """The result of reading a job's logs."""
    return _page("triage", answer=answer, strip=event_strip(answer))


def status_html(status: Status, incidents: Sequence[Incident] = ()) -> str:
    """The watched jobs and nodes, and the last incidents, for a notebook."""
    return _page("status", status=status, incidents=incidents[-MOST_INCIDENTS:])


def framed(page: str) -> str:
    """A page to embed in another, such as a notebook's, with its styles kept separate."""
    return _page("frame", page=page)


def _page(name: str, **shown: Any) -> str:
    return _pages().get_template(f"{name}.html").render(shown)


@lru_cache(maxsize=1)
def _pages() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup, escape

    def shown(value: Any) -> Any:
        return one_line(value) if type(value) is str else value  # a Markup is escaped already

    pages = Environment(
        loader=PackageLoader("ray_sentinel.report"),
        autoescape=True,
        finalize=shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    pages.globals |= {"most_culprits": MOST_CULPRITS, "most_rows": MOST_ROWS}
    filters = (
        chain_of, clock, culprit_name, day, duration, measured, merged_stacks, moment, others_title,
        percent, progress_of, sources_of, since, slowed, timeline, wait_picture, watts, who_wrote,
    )  # fmt: skip
    pages.filters |= {function.__name__: function for function in filters}
    pages.filters |= {
        "linked": _is_linked,
        "one_line": one_line,
        "lines": lambda text: Markup(escape(clean(text))),
        "attribute": lambda page: Markup(escape(page)),  # a page as the text of an attribute
        "place": _place,
        "trusted": Markup,  # made by us, from numbers
    }
    return pages


def _place(line: LogLine) -> str:
    """``train.log:17``."""
    return f"{line.file}:{line.line}" if line.line is not None else line.file


def _is_linked(log: RankLog) -> bool:
    return LINKED.fullmatch(log.file) is not None

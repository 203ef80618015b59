"""Reports as self-contained pages: no script, no font, no file beside them.

The pages are Jinja2 templates in ``templates/``. Each text that they show is put on one line,
without control characters, and escaped, wherever it comes from. Jinja2 is loaded at its first use.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ray_sentinel.model.diagnosis import Diagnosis, DiagnosisReport
from ray_sentinel.model.incident import Incident, RankLog
from ray_sentinel.report import series
from ray_sentinel.report.incident_markdown import chain_of, culprit_name, slowed
from ray_sentinel.report.rank_logs import LINKED, others_title, said_of, who_wrote
from ray_sentinel.report.stacks import frames, of_culprit, stack_name
from ray_sentinel.report.svg import svg
from ray_sentinel.report.timeline import timeline
from ray_sentinel.report.words import moment, percent, plain, since
from ray_sentinel.text import clean

if TYPE_CHECKING:
    from jinja2 import Environment


def incident_html(incident: Incident, diagnosis: Diagnosis | None = None) -> str:
    """``report.html`` of a bundle: culprit and waiter side by side. ``diagnosis`` is what the
    job's time series say."""
    lines = series.lines(diagnosis) if diagnosis is not None else []
    return _pages().get_template("incident.html").render(incident=incident, series=lines)


def diagnosis_html(report: DiagnosisReport) -> str:
    """A diagnosis with its tables and plots."""
    return (
        _pages()
        .get_template("diagnosis.html")
        .render(report=report, diagnosis=report.diagnosis, inventory=report.inventory)
    )


@lru_cache(maxsize=1)
def _pages() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup, escape

    def shown(value: Any) -> Any:
        return plain(value) if type(value) is str else value  # a Markup is escaped already

    pages = Environment(
        loader=PackageLoader("ray_sentinel.report"),
        autoescape=True,
        finalize=shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    filters = (
        chain_of, culprit_name, frames, moment, of_culprit, others_title, percent, said_of, since,
        slowed, stack_name, timeline, who_wrote,
    )  # fmt: skip
    pages.filters |= {function.__name__: function for function in filters}
    pages.filters |= {
        "linked": _is_linked,
        "plain": plain,
        "lines": lambda text: Markup(escape(clean(text))),
        "svg": lambda plot: Markup(svg(plot)),
    }
    return pages


def _is_linked(log: RankLog) -> bool:
    return LINKED.fullmatch(log.file) is not None

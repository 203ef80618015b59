"""The part of an incident's report that comes from the time series."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import msgspec

from ray_sentinel.model.diagnosis import Diagnosis, Plot
from ray_sentinel.model.incident import Incident
from ray_sentinel.report.line_plot import LinePlot, line_plot
from ray_sentinel.report.words import moment, percent
from ray_sentinel.text import one_line

MOST_LINES = 8
"""Most lines of the chain, and of the evidence; further ones are left out."""
END_OF_TIME = 253_402_300_800.0
"""The year 10000 in Unix seconds, which no calendar here knows."""
FILE = "diagnosis.json"
PLOTS_FILE = "series.json"
"""The file with the plots of a diagnosis: ``[{"title", "unit", "promql", "times", "series",
"marks"}]``, where each of ``series`` is ``[name, values]`` and a gap is null."""


class _Plot(msgspec.Struct, frozen=True):
    """A ``Plot`` in JSON, which has no NaN."""

    title: str
    unit: str
    promql: str
    times: tuple[float, ...]
    series: tuple[tuple[str, tuple[float | None, ...]], ...]
    marks: tuple[tuple[float, str], ...] = ()


def read(files: Mapping[str, bytes]) -> Diagnosis | None:
    """The diagnosis among a bundle's files, with the plots beside it; None if none can be read."""
    try:
        found = msgspec.json.decode(files[FILE], type=Diagnosis)
    except (KeyError, ValueError, RecursionError):
        return None
    return msgspec.structs.replace(found, plots=read_plots(files.get(PLOTS_FILE, b"")))


def plots_json(plots: Iterable[Plot]) -> bytes:
    """``series.json``: the series themselves, for programs and notebooks."""
    return msgspec.json.encode(tuple(plots)) + b"\n"  # NaN becomes null


def read_plots(data: bytes) -> tuple[Plot, ...]:
    """What ``plots_json`` wrote; empty if it cannot be read."""
    try:
        found = msgspec.json.decode(data, type=tuple[_Plot, ...])
    except (ValueError, RecursionError):
        return ()
    return tuple(_whole(one) for one in found if _is_even(one))


def _is_even(one: _Plot) -> bool:
    moments = (*one.times, *(at for at, _ in one.marks))
    return all(len(values) == len(one.times) for _, values in one.series) and all(
        0.0 <= at < END_OF_TIME for at in moments
    )


def _whole(one: _Plot) -> Plot:
    holes = tuple(
        (name, tuple(math.nan if value is None else value for value in values))
        for name, values in one.series
    )
    return Plot(
        title=one.title, unit=one.unit, promql=one.promql, times=one.times, series=holes,
        marks=one.marks,
    )  # fmt: skip


def drawn_around(incident: Incident, diagnosis: Diagnosis) -> tuple[LinePlot, ...]:
    """A diagnosis' plots with the incident in them: when the job moved last, when somebody was
    named, when it was over."""
    moments = (
        (incident.last_progress, "last progress"),
        (incident.confirmed_at, "named"),
        (incident.resolved_at, "over"),
    )
    marks = tuple((at, label) for at, label in moments if at is not None)
    drawn = []
    for plot in diagnosis.plots:
        shade = None
        if plot.times and incident.last_progress is not None:
            shade = (incident.last_progress, incident.resolved_at or plot.times[-1])
        drawn.append(line_plot(msgspec.structs.replace(plot, marks=marks), shade))
    return tuple(one for one in drawn if one is not None)


def lines(diagnosis: Diagnosis) -> list[str]:
    """The findings in the series, one sentence a line: the cause, who, the chain, the figures."""
    about = f"{diagnosis.analysis}, confidence {percent(diagnosis.confidence)}"
    if diagnosis.outcome != "found":
        return [f"They explain nothing here: {one_line(diagnosis.root_cause)} ({about})"]
    found = [f"{one_line(diagnosis.root_cause)} ({about})"]
    found += [
        f"{moment(link.at)}: {link.role}: {one_line(link.text)}"
        for link in diagnosis.chain[:MOST_LINES]
    ]
    found += [one_line(fact.text) for fact in diagnosis.evidence[:MOST_LINES]]
    return found

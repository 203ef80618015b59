"""A job's pulse on a line: a column for each stretch of time, as high as its longest step or call.

Events are drawn in the columns: incidents, and what the kernel or a port reported. The page draws
the same report; both show the shortest of three windows that has all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from statistics import median
from typing import NamedTuple

from rich.text import Text

from ray_sentinel.cli.top.looks import age, plain
from ray_sentinel.model.incident import Incident
from ray_sentinel.model.last_hour import JobPulse, PulseLane, PulseReport
from ray_sentinel.model.status import JobStatus
from ray_sentinel.report.words import second

WINDOWS = (300.0, 900.0, 3600.0)
"""Spans of time that can be shown, in seconds."""
CLIP = 6.0
"""Greatest height of a bar, as a multiple of the usual one; a longer duration is cut off here and
drawn in another colour."""
LEVELS = "▁▂▃▄▅▆▇█"
SIGNS = {"incident": "!", "gpu": "◆", "network": "▲", "host": "■"}
"""The sign of each kind of event, the weightiest first: where two share a column, the weightier is
shown."""
STYLES = {
    "incident": "bold red",
    "gpu": "bold magenta",
    "network": "bold yellow",
    "host": "bold blue",
}
PHASE, STILL = "░", "×"
LEGEND = "! incident  ◆ GPU  ▲ network  ■ host  ░ phase  × nothing ends"
MOST_TOLD = 200
"""Most events that the details list, the newest first."""


class PulseEvent(NamedTuple):
    """Something on a job's line of time. Unix seconds."""

    at: float
    about: str
    """The kind of event, a key of ``SIGNS``."""
    text: str


class PulseLine(NamedTuple):
    """One lane of a job's pulse, with all that is needed to draw it."""

    report: PulseReport
    pulse: JobPulse
    lane: PulseLane
    happened: tuple[PulseEvent, ...]
    still: bool
    """Whether the job stands still: nothing has ended since the last point."""
    columns: int

    @property
    def usual(self) -> float:
        """The usual duration of a step or a call, in seconds."""
        return median(point[2] for point in self.lane.points)

    @property
    def end(self) -> float:
        """Unix seconds at which the report ends."""
        return self.report.begin + self.report.places * self.report.width

    @property
    def window(self) -> float:
        """The seconds that are drawn, the same for all lanes of a job."""
        first = min(lane.points[0][0] for lane in self.pulse.lanes if lane.points)
        needed = self.end - (self.report.begin + first * self.report.width)
        return next((one for one in WINDOWS if needed <= one), WINDOWS[-1])


def pulse_lines(
    report: PulseReport | None,
    jobs: Iterable[JobStatus],
    incidents: Iterable[Incident],
    columns: int,
) -> list[PulseLine]:
    """The lanes of the jobs, in the jobs' order; ``columns`` cells wide."""
    told, found = list(incidents), []
    if report is None:
        return []
    for job in jobs:
        for pulse in report.jobs:
            if (pulse.job, pulse.attempt) == (job.job, job.attempt):
                happened = tuple(sorted(_happened(pulse, told)))
                still = job.state in ("hung", "stalled")
                found += [
                    PulseLine(report, pulse, lane, happened, still, columns)
                    for lane in pulse.lanes
                    if lane.points
                ]
    return found


def main_lane(lines: Iterable[PulseLine]) -> PulseLine | None:
    """The lane in which most of the time went; None if there is none."""
    return max(
        lines, key=lambda one: sum(point[1] * point[2] for point in one.lane.points), default=None
    )


def _happened(pulse: JobPulse, incidents: Iterable[Incident]) -> Iterator[PulseEvent]:
    for mark in pulse.marks:
        times = f" ({mark.count} times)" if mark.count > 1 else ""
        yield PulseEvent(mark.at, mark.about, f"{mark.host}: {mark.text}{times}")
    for one in incidents:
        if (one.job, one.attempt) == (pulse.job, pulse.attempt) and one.kind != "asked":
            yield PulseEvent(one.suspected_at, "incident", f"incident {one.id}: {one.summary}")


def sparkline(line: PulseLine) -> Text:
    """The lane in ``columns`` cells or fewer, the oldest first."""
    width = max(1, min(line.columns, int(line.window / line.report.width)))
    begin, usual = line.end - line.window, line.usual
    heights = [0.0] * width
    for number, _, _, longest in line.lane.points:
        column = _column(line, line.report.begin + (number + 0.5) * line.report.width, width)
        if column is not None:
            heights[column] = max(heights[column], longest)
    most = max(min(max(heights), CLIP * usual), 2 * usual, 1e-9)
    cells = [_bar(height, most, CLIP * usual) for height in heights]
    for phase in line.pulse.phases:
        stop = line.end if phase.end is None else phase.end
        for column in range(width):
            start = begin + column * line.window / width
            if not heights[column] and phase.start < start + line.window / width and stop > start:
                cells[column] = (PHASE, "dim")
    if line.still:
        last = max((column for column in range(width) if heights[column]), default=-1)
        cells[last + 1 :] = [(STILL, "red")] * (width - last - 1)
    shown = list(SIGNS)
    for one in sorted(line.happened, key=lambda one: -shown.index(one.about)):
        column = _column(line, one.at, width)
        if column is not None:
            cells[column] = (SIGNS[one.about], STYLES[one.about])
    return Text.assemble(*cells)


def _column(line: PulseLine, at: float, width: int) -> int | None:
    """In which column a time falls; None if it is not drawn."""
    share = (at - (line.end - line.window)) / line.window
    return min(int(share * width), width - 1) if 0.0 <= share <= 1.0 else None


def _bar(height: float, most: float, clip: float) -> tuple[str, str]:
    if not height:
        return " ", ""
    level = min(int(len(LEVELS) * height / most), len(LEVELS) - 1)
    return LEVELS[level], "yellow" if height > clip else "green"


def head_line(line: PulseLine) -> Text:
    """The name, the picture and the usual duration, for the line below that of the job."""
    name = line.lane.name or line.pulse.counts
    said = f"{name} {seconds(line.usual)}, last {line.window / 60:.0f} min"
    return Text.assemble("  ", sparkline(line), " ", plain(said, "dim"))


def cells(line: PulseLine) -> list[Text]:
    """A row of the table: job and method, the usual duration, the longest, the picture."""
    return [
        plain(f"{line.pulse.job} {line.lane.name}".strip(), limit=60),
        Text(seconds(line.usual)),
        Text(seconds(max(point[3] for point in line.lane.points))),
        sparkline(line),
    ]


def lane_details(line: PulseLine) -> Iterator[Text]:
    """One lane in full: the picture, and all events and phases, the newest first."""
    named = f"{line.pulse.job} attempt {line.pulse.attempt} {line.lane.name}".strip()
    count = sum(point[1] for point in line.lane.points)
    yield plain(named, "bold")
    yield plain(f"{count} {line.pulse.counts}, usually {seconds(line.usual)}, last "
                f"{line.window / 60:.0f} min until {_clock(line.end)} UTC", "dim")  # fmt: skip
    yield Text()
    yield sparkline(line)
    yield Text(LEGEND, style="dim")
    phases = [
        (one.start, f"{PHASE} {one.phase} for {age((one.end or line.end) - one.start)}", "dim")
        for one in line.pulse.phases
    ]
    events = [
        (one.at, f"{SIGNS[one.about]} {one.text}", STYLES[one.about]) for one in line.happened
    ]
    told = sorted([*phases, *events], reverse=True)
    if told:
        yield Text()
        yield plain("What happened (UTC)", "bold")
    for at, text, style in told[:MOST_TOLD]:
        yield Text.assemble((f"  {_clock(at)} ", "dim"), plain(text, style))


def seconds(value: float) -> str:
    """A duration of a step: "12 ms", "0.83 s", "4.1 s", "3.0 min"."""
    if value < 0.1:
        return f"{1000 * value:.3g} ms"
    return f"{value:.2g} s" if value < 100 else f"{value / 60:.1f} min"


def _clock(at: float) -> str:
    return second(at).split(" ")[1]

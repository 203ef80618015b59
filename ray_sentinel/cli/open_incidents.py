"""What is wrong now, under the verdict of ``status``: who, why, since when, and what to do next."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator

import msgspec
from rich.text import Text

from ray_sentinel.cli.output import clean
from ray_sentinel.cli.reach import Asked
from ray_sentinel.errors import SentinelError
from ray_sentinel.model.incident import Incident
from ray_sentinel.model.status import Status
from ray_sentinel.report.incident_markdown import culprit_name
from ray_sentinel.report.words import duration, percent, second
from ray_sentinel.text import one_line

FOUND = ("hung", "stalled")
"""States in which something is wrong, so that there may be an incident to tell of."""
ASKED_EVERY = 5.0
"""Seconds after which incidents are asked for again while the verdict stays: they come with all
their evidence, so they are asked for less often than the status."""
DEADLINE = 5.0
"""Seconds for which the status, or a screen, waits for an answer."""
MOST_INCIDENTS = 4
MOST_NAMED = 4
MOST_STEPS = 3
MOST_TEXT = 300
HALF_A_DAY = 43_200.0
"""Seconds; of what is older the day is told, too."""


def is_open(incident: Incident) -> bool:
    """Whether something is still wrong; dumps asked by hand are no faults."""
    return incident.state not in ("resolved", "dismissed") and incident.kind != "asked"


class OpenIncidents:
    """The open incidents of a coordinator that is asked over and over."""

    def __init__(self, found: Asked, clock: Callable[[], float] = time.monotonic) -> None:
        self._found, self._clock = found, clock
        self._verdict, self._at = "", 0.0
        self._open: tuple[Incident, ...] = ()

    def of(self, status: Status) -> tuple[Incident, ...]:
        """Those that belong to a status, newest first; none where nothing hangs, and those that
        were known before where they are not told: the status is shown without them, too."""
        if status.state not in FOUND:
            self._verdict, self._open = "", ()
            return ()
        now = self._clock()
        if status.verdict != self._verdict or now - self._at >= ASKED_EVERY:
            with contextlib.suppress(SentinelError, msgspec.MsgspecError):
                told = self._found.ask("incidents", tuple[Incident, ...], seconds=DEADLINE)
                self._open = tuple(one for one in reversed(told) if is_open(one))
            self._verdict, self._at = status.verdict, now
        return self._open


def incident_lines(incidents: Iterable[Incident], now: float) -> Iterator[Text]:
    """A few lines for each of the first incidents; ``now`` is the coordinator's Unix time."""
    told = list(incidents)
    for incident in told[:MOST_INCIDENTS]:
        yield _title(incident, now)
        yield from _named(incident)
        yield from _next_steps(incident)
    if len(told) > MOST_INCIDENTS:
        more = len(told) - MOST_INCIDENTS
        yield Text(f"and {more} more that are open: `ray-sentinel incidents` lists all")


def _title(incident: Incident, now: float) -> Text:
    verdict = incident.verdict
    began = incident.suspected_at if incident.last_progress is None else incident.last_progress
    what = "" if incident.last_progress is None else "no progress "
    age = f"for {duration(now - began)}, " if now >= began else ""
    when = second(began)
    if abs(now - began) < HALF_A_DAY:
        when = when.split(" ")[1]
    told = (
        clean(one_line(incident.job, MOST_TEXT)),
        incident.kind,
        f"{percent(verdict.confidence)} sure" if verdict else "",
        f"{what}{age}since {when} UTC",
    )
    text = Text.assemble((f"incident {clean(incident.id)}", "bold red"))
    return text.append("".join(f" · {part}" for part in told if part))


def _named(incident: Incident) -> Iterator[Text]:
    verdict = incident.verdict
    if verdict is None or not verdict.culprits:
        yield Text(f"  {clean(one_line(incident.summary, MOST_TEXT))}")
        return
    for one in verdict.culprits[:MOST_NAMED]:
        pid = "" if one.pid is None else f", pid {one.pid}"
        who = culprit_name(one)
        where = f"on {one.host}{pid}" if who == "-" else f"{who} on {one.host}{pid}"
        yield Text(f"  {clean(one_line(f'{where}: {one.reason}', MOST_TEXT))}", style="bold")
    if len(verdict.culprits) > MOST_NAMED:
        yield Text(f"  and {len(verdict.culprits) - MOST_NAMED} more")


def _next_steps(incident: Incident) -> Iterator[Text]:
    for step in incident.verdict.next_steps[:MOST_STEPS] if incident.verdict is not None else ():
        yield Text(f"  → {clean(one_line(step, MOST_TEXT))}")
    yield Text(f"  → ray-sentinel incidents show {clean(incident.id)}   (why, stacks, files)")

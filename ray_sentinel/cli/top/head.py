"""The head of the screen: the sentence, the jobs, who waits for whom."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from rich.text import Text

from ray_sentinel.cli.open_incidents import is_open
from ray_sentinel.cli.status_view import COLOURS, MOST_ALERTS
from ray_sentinel.cli.top.asking import SeenStatus
from ray_sentinel.cli.top.looks import age, plain, shortened
from ray_sentinel.cli.top.pulse import head_line, main_lane, pulse_lines
from ray_sentinel.model.incident import Incident
from ray_sentinel.model.status import JobStatus, Status
from ray_sentinel.report.incident_markdown import chain_of, culprit_name
from ray_sentinel.report.wait_picture import WaitPicture, wait_picture
from ray_sentinel.report.words import percent
from ray_sentinel.text import one_line

ROOT = "bold red"
STALE = 3.0
"""Seconds after which what is shown is called old, even if no question has failed yet."""
MOST_JOBS = 2
MOST_CHAIN = 7
"""Most lines of the chain of waits that are kept when jobs and chain do not both fit."""
PULSE_WORDS, LEAST_PULSE, MOST_PULSE = 34, 10, 120
"""Cells for the words beside a pulse, and the fewest and the most cells of the pulse itself."""


def head(seen: SeenStatus, now: float, rows: int, width: int) -> Text:
    """At most ``rows`` lines of at most ``width`` cells: the sentence, and who waits for whom; jobs
    and their pulses as far as there is room."""
    lines = [*_whether_it_answers(seen, now)]
    if seen.status is not None:
        lines += _sentence(seen.status, width)
        waits, more = list(chain(seen)), [*_next_step(seen), *_other_incidents(seen)]
        room = rows - len(lines) - min(len(waits), MOST_CHAIN)
        lines += list(_jobs(seen, seen.status, width))[: max(room, 1)]
        waits = list(_shortened(waits, max(rows - len(lines), 1)))
        lines += [*waits, *more]
    return Text("\n").join(shortened(line, width) for line in lines[:rows])


def _jobs(seen: SeenStatus, status: Status, width: int) -> Iterator[Text]:
    """Those in trouble first, each with its pulse."""
    running = [job for job in status.jobs if not job.ended]
    running.sort(key=lambda job: job.state == "healthy")
    for job in running[:MOST_JOBS]:
        yield _job(job)
        yield from _pulse(seen, job, width)
    if len(running) > MOST_JOBS:
        yield Text(f"and {len(running) - MOST_JOBS} jobs more", style="dim")


def seen_ago(seen: SeenStatus, now: float) -> str:
    """The age of what is shown."""
    return f"seen {age(now - seen.at)} ago" if seen.status is not None else ""


def _whether_it_answers(seen: SeenStatus, now: float) -> Iterator[Text]:
    if seen.status is None:
        yield plain(f"no answer yet: {seen.error}" if seen.error else "asking …", "yellow")
    elif seen.error or now - seen.at > STALE:
        told = f"NOT ANSWERING: this is {age(now - seen.at)} old"
        why = f" ({seen.error})" if seen.error else ""
        yield plain(f"{told}{why}", "bold black on yellow")


def _sentence(status: Status, width: int) -> list[Text]:
    """The state and the verdict, on two lines where one is too short."""
    state = Text(status.state.upper(), style=COLOURS.get(status.state, ""))
    words = one_line(status.verdict, 1000)
    first, *others = textwrap.wrap(words, max(width - len(state) - 1, 20)) or [""]
    lines = [Text.assemble(state, " ", (first, "bold"))]
    if others:
        lines.append(Text(" " * (len(state) + 1) + " ".join(others), style="bold"))
    return lines


def _job(job: JobStatus) -> Text:
    """The weightiest first: a narrow terminal has no room for all of it."""
    size = f"{len(job.ranks)}/{job.world_size}" if job.world_size else str(len(job.ranks))
    told = (
        f"{size} ranks" if job.ranks or job.world_size else "",
        f"{len(job.members)} processes of Ray" if job.members else "",
        "" if job.step is None else f"step {job.step}",
        "" if job.step_seconds is None else f"{job.step_seconds:.2f} s a step",
        job.expected or job.phase,
        job.requests,
        f"{min(len(job.alerts), MOST_ALERTS)} alerts" if job.alerts else "",
        f"attempt {job.attempt}",
    )
    text = Text.assemble(plain(job.job, "bold", 60))
    for part in filter(None, told):
        text.append(" · ", "dim").append_text(plain(part))
    return text


def _pulse(seen: SeenStatus, job: JobStatus, width: int) -> Iterator[Text]:
    columns = min(max(width - PULSE_WORDS, LEAST_PULSE), MOST_PULSE)
    lane = main_lane(pulse_lines(seen.pulse, (job,), seen.incidents, columns))
    if lane is not None:
        yield head_line(lane)


def chain(seen: SeenStatus) -> Iterator[Text]:
    """Who waits for whom, down to the root, which is in colour."""
    opened = _opened(seen)
    if opened:
        running = sum(not job.ended for job in seen.status.jobs) if seen.status is not None else 0
        yield from _of_incident(opened[-1], named=running > 1)
        return
    for job in seen.status.jobs if seen.status is not None else ():
        if job.waits and not job.ended:
            yield plain(f"who waits for whom: {job.waits}", "yellow")


def _opened(seen: SeenStatus) -> list[Incident]:
    return [one for one in seen.incidents if is_open(one) and one.verdict is not None]


def _next_step(seen: SeenStatus) -> Iterator[Text]:
    """What to do first about the incident that is drawn."""
    for incident in _opened(seen)[-1:]:
        verdict = incident.verdict
        if verdict is not None and verdict.next_steps:
            yield plain(f"→ {verdict.next_steps[0]}", "bold")


def _other_incidents(seen: SeenStatus) -> Iterator[Text]:
    more = len(_opened(seen)) - 1
    if more > 0:
        told = "one more incident is" if more == 1 else f"{more} more are"
        yield Text(f"{told} open: pane 5", style="yellow")


def _of_incident(incident: Incident, *, named: bool) -> Iterator[Text]:
    """``named``: with its job, where several run."""
    verdict = incident.verdict
    assert verdict is not None
    sure = f" ({percent(verdict.confidence)} sure)"
    if not verdict.chain and (picture := wait_picture(incident)) is not None:
        yield from _rail(picture, sure, f" · {incident.job}" if named else "")
        return
    roots = [f"{culprit_name(one)} on {one.host}: {one.reason}" for one in verdict.culprits]
    roots = roots or [verdict.summary]
    roots[0] += sure
    before = f"{incident.job}:" if named else ""
    yield from (plain(line, "yellow") for line in verdict.waiting if not verdict.chain)
    steps = list(chain_of(incident))[: len(verdict.chain)]
    yield from _stairs(steps, roots, before)


def _stairs(steps: list[str], roots: list[str], before: str) -> Iterator[Text]:
    """Each waits for the next one; the roots wait for nobody."""
    told = [(step, "yellow") for step in steps] + [(root, ROOT) for root in roots]
    for number, (text, style) in enumerate(told):
        depth = min(number, len(steps), 6)
        lead = "" if not depth else "  " * (depth - 1) + "└▶ "
        line = Text.assemble((lead, "dim"), plain(before, "dim"))
        yield line.append(" " if before else "").append_text(plain(text, style))
        before = ""


def _rail(picture: WaitPicture, sure: str, job: str) -> Iterator[Text]:
    """Classes of ranks that wait, along a rail to those that hold them up; the rail is dotted where
    a class waits for another class."""
    waiters = [box for box in picture.boxes if box.kind == "waiter"]
    dashed = [arrow.dashed for arrow in picture.arrows if arrow.back]
    for number, (box, indirect) in enumerate(zip(waiters, dashed, strict=False)):
        who, _, what = box.whole.partition(" · ")
        lead = "┊ " if indirect else "├ " if number else "┌ "
        yield Text.assemble((lead, "dim"), plain(who, "bold yellow"), " ", plain(what, "yellow"))
    for number, box in enumerate(one for one in picture.boxes if one.kind == "root"):
        lead = "   " if number else "└▶ "
        yield Text.assemble((lead, "dim"), plain(box.whole + (job if number else sure + job), ROOT))


def _shortened(lines: list[Text], most: int) -> Iterable[Text]:
    """The beginning and the root; the middle of a longer one is left out."""
    if len(lines) <= most:
        return lines
    if most == 1:
        return lines[-1:]
    before = max(most - 2, 1)
    left_out = f"… {len(lines) - before - 1} more: enter on pane 5"
    return [*lines[:before], Text(left_out, style="dim"), lines[-1]]

"""The status as people read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ray_sentinel.cli.open_incidents import incident_lines
from ray_sentinel.cli.output import clean
from ray_sentinel.model.incident import Incident
from ray_sentinel.model.metrics import CollectorStatus
from ray_sentinel.model.status import CoordinatorStatus, JobStatus, NodeStatus, Status
from ray_sentinel.report.words import cost_of

COLOURS = {
    "healthy": "green",
    "slow": "yellow",
    "stalled": "yellow",
    "hung": "bold red",
    "unknown": "dim",
    "running": "green",
    "waiting": "dim",
    "idle": "dim",
    "exited": "red",
    "stopped": "bold red",
    "gil-held": "bold red",
    "blocked": "bold red",
    "silent": "yellow",
}
WELL = ("running", "waiting", "idle")
SEVERITIES = ("critical", "warning", "info")
MOST_ALERTS = 20
MOST_ROWS = 64
"""Most ranks, processes or nodes that are listed in full. Of more, only those in trouble are."""
FEWEST_ROWS = 8
"""How many of a longer list are shown though all is well with them."""

LATE_SECONDS = 10.0
"""Age of a node's last report from which on it is late, as on the page: one comes each second."""

Row = TypeVar("Row")


def status_view(
    status: Status, link: str = "", incidents: Sequence[Incident] = ()
) -> RenderableType:
    """The whole page; ``link`` is the one to the coordinator's, with its token, and ``incidents``
    are the open ones."""
    parts: list[RenderableType] = [headline(status, incidents)]
    for job in status.jobs:
        if not job.ended:
            parts.append(_title(job))
            if job.ranks:
                parts.append(_ranks(job))
            if job.members:
                parts.append(_members(job))
            if job.waits:
                parts.append(Text(f"who waits for whom: {clean(job.waits)}"))
            parts += _warnings(job)
    if not status.jobs:
        parts.append(Text(NO_JOB, style="dim"))
    if status.nodes:
        parts.append(_nodes(status))
    if status.coordinator is not None:
        parts.append(Text(f"coordinator: {_work(status.coordinator)}", style="dim"))
    parts += [
        Text(f"not watched: {clean(node.host)}: {clean(node.reason)}", style="yellow")
        for node in status.unwatched
    ]
    parts += [Text(f"note: {clean(note)}", style="dim") for note in status.notes]
    if link or status.page:
        # In one piece, even if it is longer than the terminal is wide, so that it can be copied.
        shown = clean(link or status.page)
        parts.append(Text(f"page: {shown}", style="dim", no_wrap=True, overflow="ignore"))
    if status.log_dir:
        parts.append(Text(f"files: {clean(status.log_dir)}", style="dim"))
    return Group(*parts)


NO_JOB = (
    "A job is seen once its ranks run on these nodes, with a launcher's RANK and WORLD_SIZE in "
    "their environment, or once attach() is called."
)


def headline(status: Status, incidents: Sequence[Incident] = ()) -> RenderableType:
    """The sentence, and what is wrong: who, why, since when, and what to do."""
    sentence = Text.assemble(
        (status.state, COLOURS.get(status.state, "")), "  ", clean(status.verdict)
    )
    return Group(sentence, *incident_lines(incidents, status.time))


def _title(job: JobStatus) -> Text:
    size = f"{len(job.ranks)} of {job.world_size}" if job.world_size else str(len(job.ranks))
    # What is expected begins with the phase.
    phase = "" if job.expected.startswith(job.phase) else job.phase
    told = (
        f"attempt {job.attempt}",
        f"{size} ranks" if job.ranks or job.world_size else "",
        f"{len(job.members)} processes of Ray" if job.members else "",
        f"step {_number(job.step)}" if job.ranks else "",
        clean(phase),
        clean(job.expected),
        clean(job.requests),
    )
    state = (job.state, COLOURS.get(job.state, ""))
    title = Text.assemble((clean(job.job), "bold"), " · ", state)
    return title.append("".join(f" · {part}" for part in told if part))


def _ranks(job: JobStatus) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), caption_justify="left")
    for name in ("rank", "host", "pid", "step", "phase", "state", "last step"):
        table.add_column(name, justify="right" if name in ("rank", "pid", "step") else "left")
    shown, more = _most_telling(job.ranks, [rank.state in WELL for rank in job.ranks])
    for rank in shown:
        table.add_row(
            str(rank.rank) + (f" {clean(rank.role)}" if rank.role else ""),
            clean(rank.host),
            str(rank.pid),
            _number(rank.step),
            clean(rank.phase),
            Text(clean(rank.state), style=COLOURS.get(rank.state, "")),
            _age(rank.step_age_seconds),
        )
    table.caption = _more(more, "ranks")
    return table


def _most_telling(rows: Sequence[Row], well: Sequence[bool]) -> tuple[list[Row], int]:
    """The rows that are shown, and how many others there are. Of more than ``MOST_ROWS`` those in
    trouble come first, so that the sentence above them stays in sight."""
    if len(rows) <= MOST_ROWS:
        return list(rows), 0
    order = sorted(range(len(rows)), key=lambda number: well[number])
    trouble = len(rows) - sum(well)
    shown = order[: max(min(trouble, MOST_ROWS), FEWEST_ROWS)]
    return [rows[number] for number in shown], len(rows) - len(shown)


def _more(number: int, what: str) -> str | None:
    return f"and {number} more {what}: --json shows all" if number else None


def _members(job: JobStatus) -> Table:
    """The driver and the actors that are no ranks."""
    table = Table(box=None, padding=(0, 2, 0, 0), caption_justify="left")
    for name in ("process", "host", "pid", "runs", "for", "usually", "state"):
        table.add_column(name, justify="right" if name in ("pid", "for", "usually") else "left")
    shown, more = _most_telling(job.members, [one.state in WELL for one in job.members])
    for one in shown:
        table.add_row(
            clean(one.label),
            clean(one.host),
            str(one.pid),
            clean(one.method) or "-",
            _seconds(one.seconds),
            _seconds(one.usual_seconds),
            Text(clean(one.state), style=COLOURS.get(one.state, "")),
        )
    table.caption = _more(more, "processes")
    return table


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f} s" if value < 100 else f"{value / 60:.0f} min"


def _warnings(job: JobStatus) -> Iterator[Text]:
    """What telemetry shows, the worst first, and who slows the job down."""
    found = job.straggler
    if found is not None and found.whom:
        yield Text(clean(cost_of(found)), style="yellow")
    for alert in sorted(job.alerts, key=lambda a: SEVERITIES.index(a.severity))[:MOST_ALERTS]:
        style = "bold red" if alert.severity == "critical" else "yellow"
        place = f"{alert.place}: " if alert.place else ""
        text = clean(f"{alert.rule}: {place}{alert.text}")
        yield Text(text, style="dim" if alert.severity == "info" else style)
    if len(job.alerts) > MOST_ALERTS:
        yield Text(f"and {len(job.alerts) - MOST_ALERTS} more alerts: --json shows all")


def _nodes(status: Status) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), caption_justify="left")
    for name in ("node", "address", "metrics", "reported", "collectors"):
        table.add_column(name, no_wrap=name == "metrics")
    shown, more = _most_telling(status.nodes, [not is_troubled(node) for node in status.nodes])
    for node in shown:
        table.add_row(
            clean(node.host) + (" (head)" if node.is_head else ""),
            clean(node.address),
            clean(_behind_address(node)) or "-",
            Text(_age(node.snapshot_age_seconds), style="yellow" if _is_late(node) else ""),
            _collectors(node),
        )
    table.caption = _more(more, "nodes")
    return table


def _behind_address(node: NodeStatus) -> str:
    """What follows the node's address in the URL of its metrics, as `:9400/metrics`: a table of 80
    columns has no room for the address twice. The whole URL where it begins otherwise."""
    host = f"[{node.address}]" if ":" in node.address else node.address
    return node.metrics_url.removeprefix(f"http://{host}") if host else node.metrics_url


def _work(told: CoordinatorStatus) -> str:
    cycle = (
        "" if told.cycle_seconds is None else f", a cycle takes {1000 * told.cycle_seconds:.0f} ms"
    )
    missing_relays = f"{told.relays} of {told.relays_wanted}"
    relays = missing_relays if told.relays < told.relays_wanted else str(told.relays or "")
    way = f" by way of {relays} relays" if relays else ""
    waiting, missing = told.log_waiting_bytes, told.log_missing
    return (
        f"{told.reports_per_second:.0f} reports a second{way}{cycle}, memory "
        f"{told.memory_bytes >> 20} of {told.memory_limit_bytes >> 20} MiB"
        + (f", {waiting / 2**20:.1f} MiB of events wait for the disk" if waiting >> 16 else "")
        + (f", {missing} events are missing in the log" if missing else "")
    )


def is_troubled(node: NodeStatus) -> bool:
    """Whether its report is late, or something is not seen of it."""
    return _is_late(node) or bool(failing_collectors(node))


def _is_late(node: NodeStatus) -> bool:
    age = node.snapshot_age_seconds
    return age is None or age > LATE_SECONDS


def failing_collectors(node: NodeStatus) -> list[CollectorStatus]:
    """Its collectors that should tell something and do not."""
    return [
        one
        for one in node.collectors
        if one.state != "skipped" and (one.state != "running" or one.success is False)
    ]


def _collectors(node: NodeStatus) -> Text:
    failing = failing_collectors(node)
    running = [one.name for one in node.collectors if one.state == "running" and one not in failing]
    text = Text(clean(" ".join(running)))
    for collector in failing:
        why = f" ({collector.message})" if collector.message else ""
        text.append(f" {clean(collector.name)}: {collector.state}{clean(why)}", style="yellow")
    return text


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds:.1f} s ago" if seconds < 100 else f"{seconds / 60:.0f} min ago"

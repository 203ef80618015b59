"""The status as people read it."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ray_sentinel.cli.output import clean
from ray_sentinel.model.status import CoordinatorStatus, JobStatus, NodeStatus, RankStatus, Status
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
MOST_RANKS = 64
"""Most ranks that are listed for a job; those in trouble come first."""


def status_view(status: Status, link: str = "") -> RenderableType:
    """The whole page; ``link`` is the one to the coordinator's, with its token."""
    parts: list[RenderableType] = [_headline(status)]
    for job in status.jobs:
        if not job.ended:
            parts.append(_job(job))
            if job.members:
                parts.append(_members(job))
            if job.waits:
                parts.append(Text(f"who waits for whom: {clean(job.waits)}"))
            parts += _warnings(job)
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


def _headline(status: Status) -> Text:
    return Text.assemble((status.state, COLOURS.get(status.state, "")), "  ", clean(status.verdict))


def _job(job: JobStatus) -> RenderableType:
    size = f"{len(job.ranks)} of {job.world_size}" if job.world_size else str(len(job.ranks))
    told = (
        f"attempt {job.attempt}",
        f"{size} ranks" if job.ranks or job.world_size else "",
        f"{len(job.members)} processes of Ray" if job.members else "",
        f"step {_number(job.step)}" if job.ranks else "",
        clean(job.phase),
        clean(job.expected),
        clean(job.requests),
    )
    title = Text.assemble((clean(job.job), "bold"), *(f" · {part}" for part in told if part))
    if not job.ranks:
        return title
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for name in ("rank", "host", "pid", "step", "phase", "state", "last step"):
        table.add_column(name, justify="right" if name in ("rank", "pid", "step") else "left")
    for rank in _most_telling(job):
        table.add_row(
            str(rank.rank) + (f" {clean(rank.role)}" if rank.role else ""),
            clean(rank.host),
            str(rank.pid),
            _number(rank.step),
            clean(rank.phase),
            Text(clean(rank.state), style=COLOURS.get(rank.state, "")),
            _age(rank.step_age_seconds),
        )
    hidden = len(job.ranks) - min(len(job.ranks), MOST_RANKS)
    if hidden:
        table.caption = f"and {hidden} ranks more: --json shows all"
    return table


def _members(job: JobStatus) -> Table:
    """The driver and the actors that are no ranks; those in trouble come first where there are
    many."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("process", "host", "pid", "runs", "for", "usually", "state"):
        table.add_column(name, justify="right" if name in ("pid", "for", "usually") else "left")
    shown = sorted(job.members, key=lambda one: one.state in WELL)
    for one in job.members if len(shown) <= MOST_RANKS else shown[:MOST_RANKS]:
        table.add_row(
            clean(one.label),
            clean(one.host),
            str(one.pid),
            clean(one.method) or "-",
            _seconds(one.seconds),
            _seconds(one.usual_seconds),
            Text(clean(one.state), style=COLOURS.get(one.state, "")),
        )
    if len(job.members) > MOST_RANKS:
        more = len(job.members) - MOST_RANKS
        table.caption = f"and {more} processes more: --json shows all"
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
        yield Text(f"and {len(job.alerts) - MOST_ALERTS} alerts more: --json shows all")


def _most_telling(job: JobStatus) -> Iterator[RankStatus]:
    if len(job.ranks) <= MOST_RANKS:
        yield from job.ranks
        return
    ordered = sorted(job.ranks, key=lambda rank: (rank.state in WELL, rank.rank))
    yield from ordered[:MOST_RANKS]


def _nodes(status: Status) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("node", "address", "metrics", "reported", "collectors"):
        table.add_column(name)
    for node in status.nodes:
        table.add_row(
            clean(node.host) + (" (head)" if node.is_head else ""),
            clean(node.address),
            clean(node.metrics_url) or "-",
            _age(node.snapshot_age_seconds),
            _collectors(node),
        )
    return table


def _work(told: CoordinatorStatus) -> str:
    cycle = "" if told.cycle_seconds is None else f", a cycle takes {told.cycle_seconds:.2f} s"
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


def _collectors(node: NodeStatus) -> Text:
    running = [c.name for c in node.collectors if c.state == "running" and c.success is not False]
    others = [c for c in node.collectors if c.name not in running and c.state != "skipped"]
    text = Text(clean(" ".join(running)))
    for collector in others:
        why = f" ({collector.message})" if collector.message else ""
        text.append(f" {clean(collector.name)}: {collector.state}{clean(why)}", style="yellow")
    return text


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds:.1f} s ago" if seconds < 100 else f"{seconds / 60:.0f} min ago"

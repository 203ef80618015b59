"""What the demo shows on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ray_sentinel.demo.actor_trial import ActorTrialOutcome
from ray_sentinel.demo.plan import TrialPlan
from ray_sentinel.demo.trial import TrialOutcome
from ray_sentinel.model.incident import Incident, Verdict
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.model.status import JobStatus, Status
from ray_sentinel.report.incident_markdown import chain_of
from ray_sentinel.report.stacks import frames, of_culprit
from ray_sentinel.report.words import percent
from ray_sentinel.text import clean

COLOURS = {"healthy": "green", "slow": "yellow", "stalled": "yellow", "hung": "red"}
SHOWN_FRAMES = 8
SHOWN_LINES = 4
"""Most lines that say why somebody is named, and most about where the others wait."""


def progress(status: Status | None, note: str) -> RenderableType:
    """The live view: a line for each rank, and what is going on."""
    if status is None or not status.jobs:
        return Panel(Text(note), title="ray-sentinel demo", border_style="blue")
    colour = COLOURS.get(status.state, "blue")
    parts: list[RenderableType] = [_ranks(job) for job in status.jobs]
    verdict = Text(clean(status.verdict), style=colour)
    return Panel(Group(*parts, verdict, Text(note, style="dim")), border_style=colour,
                 title=f"ray-sentinel demo: {status.state}")  # fmt: skip


def _ranks(job: JobStatus) -> Table:
    table = Table(title=clean(f"{job.job}, {job.phase}"), expand=True, border_style="dim")
    for name in ("rank", "node", "pid", "step", "state", "last moved"):
        table.add_column(name, justify="left" if name in ("node", "state") else "right")
    for rank in job.ranks:
        ago = "" if rank.step_age_seconds is None else f"{rank.step_age_seconds:.1f} s ago"
        style = "" if rank.state in ("running", "waiting") else "yellow"
        step = "-" if rank.step is None else str(rank.step)
        cells = (str(rank.rank), clean(rank.host), str(rank.pid), step, rank.state, ago)
        table.add_row(*cells, style=style)
    return table


def verdict(console: Console, outcome: TrialOutcome | ActorTrialOutcome) -> None:
    """The end: who it was, why, the report, and whether it is true. Of a training also the stacks
    that show it, of a job of actors the chain of waits that leads there."""
    incident = outcome.incident
    if incident is None or incident.verdict is None:
        console.print(Panel("no verdict came", style="red"))
    else:
        console.print(Panel(_sentence(incident, incident.verdict, outcome), border_style="red",
                            title="verdict"))  # fmt: skip
        if isinstance(outcome, TrialOutcome):
            console.print(_beside(_stacks(incident.verdict)))
        if incident.bundle:
            # In one piece, so that it can be copied.
            report = f"report: {clean(incident.bundle)}/report.md"
            console.print(report, markup=False, soft_wrap=True)
    console.print(_truth(outcome))


def _sentence(
    incident: Incident, verdict: Verdict, outcome: TrialOutcome | ActorTrialOutcome
) -> Text:
    kind = f"kind {incident.kind}"
    if isinstance(outcome, TrialOutcome):
        summary, kind = verdict.summary, f"{kind}, confidence {percent(verdict.confidence)}"
        why = [item.text for item in verdict.evidence if item.weight >= 0]
        waiting = [f"waiting: {line}" for line in verdict.waiting]
        lines = (*why[:SHOWN_LINES], *waiting[:SHOWN_LINES])
    else:
        summary, lines = incident.summary, chain_of(incident)
    text = Text(clean(summary) + "\n", style="bold")
    text.append(kind, style="dim")
    if outcome.seconds is not None:
        text.append(f", named {outcome.seconds:.1f} s after it began", style="dim")
    for line in lines:
        text.append(f"\n  {clean(line)}", style="default")
    return text


def _stacks(verdict: Verdict) -> list[Panel]:
    """The culprits' stacks, and the first waiter's beside them."""
    culprits = [fact for fact in verdict.stacks if of_culprit(fact, verdict)]
    waiters = [fact for fact in verdict.stacks if not of_culprit(fact, verdict)]
    return [_stack(fact, "culprit", "red") for fact in culprits] + [
        _stack(fact, "waiter", "green") for fact in waiters[:1]
    ]


def _beside(panels: Sequence[Panel]) -> RenderableType:
    """Side by side, two in a row, in equal widths."""
    grid = Table.grid(expand=True)
    for _ in range(2):
        grid.add_column(ratio=1)
    for first in range(0, len(panels), 2):
        grid.add_row(*panels[first : first + 2])
    return grid


def _stack(fact: StackFact, who: str, colour: str) -> Panel:
    rank = fact.rank.rank if fact.rank is not None else "?"
    lines = frames(fact)
    text = "\n".join(clean(line) for line in lines[:SHOWN_FRAMES]) or "no Python frames"
    return Panel(Text(text, overflow="fold"), title=f"rank {rank} ({who})", border_style=colour)


def _truth(outcome: TrialOutcome | ActorTrialOutcome) -> Text:
    plan = outcome.plan
    if isinstance(plan, TrialPlan):
        whom = f"rank {', '.join(map(str, plan.ranks))}" if plan.ranks else "nobody"
        drawn, kinds = f"{whom}, step {plan.step}, layout {plan.layout}", plan.expected.kinds
    else:
        drawn, kinds = plan.culprit or "nobody", plan.kinds
    told = Text(
        f"what was drawn: {plan.fault}, {drawn} (--seed {plan.seed}), "
        f"kind {' or '.join(kinds) or 'none'}: "
    )
    if outcome.right:
        return told.append("the verdict is right", style="bold green")
    return told.append(f"the verdict is WRONG: {outcome.wrong}", style="bold red")

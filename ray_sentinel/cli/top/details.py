"""One rank, node or incident in full, as lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.text import Text

from ray_sentinel.cli.status_view import COLOURS
from ray_sentinel.cli.top.head import ROOT
from ray_sentinel.cli.top.looks import age, plain
from ray_sentinel.cli.top.process_lines import ProcessLine
from ray_sentinel.model.incident import Incident, RankLog, Verdict
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.model.status import NodeStatus
from ray_sentinel.report.incident_markdown import chain_of, culprit_name
from ray_sentinel.report.stacks import frames, stack_name
from ray_sentinel.report.words import percent, progress_of, second

TITLE = "bold"
MOST_LINES = 2000
"""Most lines of an incident; a terminal is no place to read more."""


def joined(lines: Iterable[Text]) -> Text:
    """As one text, bounded."""
    kept: list[Text] = []
    for line in lines:
        if len(kept) == MOST_LINES:
            kept.append(Text("… more: ray-sentinel incidents show", style="dim"))
            break
        kept.append(line)
    return Text("\n").join(kept)


def of_incident(incident: Incident) -> Iterator[Text]:
    """What happened, who did it, what to do, who waits for whom, why we think so, the stacks, the
    output."""
    yield plain(f"incident {incident.id}: {incident.summary}", TITLE)
    told = (
        incident.kind,
        progress_of(incident.state),
        f"{incident.job} attempt {incident.attempt}",
        f"suspected {second(incident.suspected_at)} UTC",
    )
    yield plain(" · ".join(told), "dim")
    verdict = incident.verdict
    if verdict is not None:
        yield from _of_verdict(incident, verdict)
    for log in incident.logs:
        yield from _output(log)
    if incident.bundle:
        yield Text()
        yield plain(f"files: {incident.bundle}", "dim")


def _of_verdict(incident: Incident, verdict: Verdict) -> Iterator[Text]:
    yield from _section(f"Culprits ({percent(verdict.confidence)} sure)", (
        f"{culprit_name(one)} on {one.host}" + (f" pid {one.pid}" if one.pid else "")
        + (f" GPU {one.gpu}" if one.gpu else "") + f": {one.reason}"
        for one in verdict.culprits
    ), ROOT)  # fmt: skip
    yield from _section("What to do", verdict.next_steps)
    yield from _section("Who waits for whom", [*chain_of(incident), *verdict.waiting], "yellow")
    yield from _section("Why", (f"{item.text} ({item.source})" for item in verdict.evidence))
    for fact in verdict.stacks:
        yield from _stack(fact, verdict)


def of_process(line: ProcessLine, incidents: Iterable[Incident]) -> Iterator[Text]:
    """One process: what it does, and what the incidents know of it."""
    yield plain(f"{line.who} of {line.job}", TITLE)
    yield plain(f"{line.host} pid {line.pid}" + (f" · {line.role}" if line.role else ""))
    yield Text.assemble(("state ", "dim"), plain(line.state, COLOURS.get(line.state, "")))
    if line.step is not None:
        behind = f", {line.behind} behind the furthest" if line.behind else ""
        yield plain(f"step {line.step}{behind}, {age(line.seconds)} ago")
    if line.does:
        usual = "" if line.step is not None else f" for {age(line.seconds)}"
        yield plain(f"in {line.does}{usual}")
    newest = sorted(incidents, key=lambda one: one.suspected_at, reverse=True)
    of_its_job = [one for one in newest if one.job == line.job]
    for incident in newest:
        known = list(_in_incident(line, incident))
        if known:
            yield from _titled(incident)
            yield from known
    if any(_has_stack(line, incident) for incident in newest):
        return
    if of_its_job and of_its_job[0].verdict is not None and of_its_job[0].verdict.stacks:
        # Those who stand at the same place have one stack together.
        verdict = of_its_job[0].verdict
        yield from _titled(of_its_job[0], "merged stacks of its job: culprits, then each class")
        for fact in verdict.stacks:
            yield from _stack(fact, verdict)
    else:
        yield Text()
        yield plain("no incident has stacks of its job; s takes this one's now", "dim")


def _titled(incident: Incident, more: str = "") -> Iterator[Text]:
    yield Text()
    yield plain(
        f"incident {incident.id} ({progress_of(incident.state)}): {more or incident.summary}", TITLE
    )


def _has_stack(line: ProcessLine, incident: Incident) -> bool:
    stacks = incident.verdict.stacks if incident.verdict is not None else ()
    return any((one.process.host, one.process.pid) == (line.host, line.pid) for one in stacks)


def _in_incident(line: ProcessLine, incident: Incident) -> Iterator[Text]:
    verdict = incident.verdict
    if verdict is not None:
        for one in verdict.culprits:
            if (one.host, one.pid) == (line.host, line.pid):
                yield plain(f"named: {one.reason}", ROOT)
        for item in verdict.evidence:
            if line.rank is not None and item.rank == line.rank and incident.job == line.job:
                yield plain(f"{item.text} ({item.source})")
        for fact in verdict.stacks:
            if (fact.process.host, fact.process.pid) == (line.host, line.pid):
                yield from _stack(fact, verdict)
    for log in incident.logs:
        if (log.host, log.pid) == (line.host, line.pid):
            yield from _output(log)


def of_node(node: NodeStatus, lines: Iterable[ProcessLine]) -> Iterator[Text]:
    """One node: its collectors and who runs there."""
    yield plain(f"{node.host}{' (head)' if node.is_head else ''} {node.address}", TITLE)
    yield plain(f"last report {age(node.snapshot_age_seconds)} ago · {node.metrics_url}", "dim")
    if node.memory_bytes is not None:
        yield plain(f"the agent takes {node.memory_bytes >> 20} MiB", "dim")
    yield from _section("Collectors", (
        f"{one.name}: {one.state}" + (f" ({one.message})" if one.message else "")
        for one in node.collectors
    ))  # fmt: skip
    yield from _section("Processes", (
        f"{one.who} of {one.job}, pid {one.pid}: {one.state} {one.does}"
        for one in lines if one.host == node.host
    ))  # fmt: skip


def _section(title: str, lines: Iterable[str], style: str = "") -> Iterator[Text]:
    told = list(lines)
    if told:
        yield Text()
        yield plain(title, TITLE)
        for line in told:
            yield Text("  ").append_text(plain(line, style, 1000))


def _stack(fact: StackFact, verdict: Verdict) -> Iterator[Text]:
    label = f": {fact.label}" if fact.label else ""
    shown = frames(fact) or [fact.error or "no frames"]
    yield from _section(f"Stack of {stack_name(fact, verdict)} ({fact.tool}){label}", shown)


def _output(log: RankLog) -> Iterator[Text]:
    shown = [*log.lines] or [log.missing or log.file]
    yield from _section(f"Last output of {log.who} on {log.host}", shown)

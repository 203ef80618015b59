"""``report.md`` of an incident: the verdict first, then why, then the stacks that show it."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.model.diagnosis import Diagnosis
from ray_sentinel.model.incident import ChainLink, Culprit, Incident, RankLog, Verdict
from ray_sentinel.report import series
from ray_sentinel.report.markdown_text import block, cell, code, escaped, table
from ray_sentinel.report.rank_logs import LINKED, others_title, said_of, who_wrote
from ray_sentinel.report.stacks import frames, of_culprit, stack_name
from ray_sentinel.report.timeline import timeline
from ray_sentinel.report.words import cost_of, moment, percent, plain, since
from ray_sentinel.waitgraph.chain import step_text


def markdown(
    incident: Incident, files: tuple[str, ...] = (), diagnosis: Diagnosis | None = None
) -> str:
    """The report as Markdown; ``files`` are the names beside it in the bundle, and ``diagnosis``
    is what the job's time series say."""
    return "\n".join(_lines(incident, files, diagnosis)) + "\n"


def _lines(
    incident: Incident, files: tuple[str, ...], diagnosis: Diagnosis | None
) -> Iterator[str]:
    verdict = incident.verdict
    yield f"# {escaped(incident.summary)}"
    yield ""
    yield from _facts(incident)
    if verdict is not None:
        yield from _culprits(verdict)
        chain = [f"{number}. {escaped(line)}" for number, line in enumerate(chain_of(incident), 1)]
        yield from _section("Who waits for whom", chain)
        yield from _section("What to do", [f"- {escaped(step)}" for step in verdict.next_steps])
        yield from _evidence(verdict)
        waiting = [f"- {escaped(line)}" for line in verdict.waiting]
        yield from _section("What the others wait for", waiting)
        yield from _stacks(verdict)
    yield from _logs(incident)
    yield from _section("Who slowed it down before", [f"- {escaped(s)}" for s in slowed(incident)])
    if diagnosis is not None:
        told = [f"- {escaped(line)}" for line in series.lines(diagnosis)]
        yield from _section("What the time series say", told)
    yield from _timeline(incident)
    yield from _section("Files", [f"- {code(name)}" for name in files])


def _section(title: str, lines: list[str]) -> Iterator[str]:
    if lines:
        yield from ("", f"## {title}", "", *lines)


def _facts(incident: Incident) -> Iterator[str]:
    verdict = incident.verdict
    confidence = f", confidence {percent(verdict.confidence)}" if verdict else ""
    yield f"- **Kind:** {incident.kind} ({incident.severity}{confidence})"
    yield f"- **Job:** {code(incident.job)}, attempt {incident.attempt}"
    yield f"- **State:** {incident.state}"
    yield f"- **Last progress:** {moment(incident.last_progress)}"
    if incident.confirmed_at is not None:
        after = since(incident.last_progress, incident.confirmed_at)
        told = f" ({after} after the last progress)" if after else ""
        yield f"- **Named:** {moment(incident.confirmed_at)}{told}"
    if incident.resolved_at is not None:
        yield f"- **Over:** {moment(incident.resolved_at)}"


def _culprits(verdict: Verdict) -> Iterator[str]:
    if not verdict.culprits:
        yield from _section("Culprits", ["Nobody is named: the evidence accuses nobody."])
        return
    rows = [
        (
            culprit_name(culprit),
            culprit.host,
            "-" if culprit.pid is None else str(culprit.pid),
            culprit.reason,
        )
        for culprit in verdict.culprits
    ]
    yield from _section("Culprits", table(("who", "host", "pid", "why"), rows))


def _evidence(verdict: Verdict) -> Iterator[str]:
    lines = []
    for item in verdict.evidence:
        side = "against" if item.weight > 0 else "for" if item.weight < 0 else "context"
        weight = f" {item.weight:+.1f}" if item.weight else ""
        lines.append(f"- {escaped(item.text)} *({cell(item.source)}, {side}{weight})*")
    yield from _section("Why", lines)


def _stacks(verdict: Verdict) -> Iterator[str]:
    for fact in verdict.stacks:
        who = "culprit" if of_culprit(fact, verdict) else "waiter"
        title = f"Stack of {stack_name(fact, verdict)} ({who}, {cell(fact.tool)})"
        yield from _section(title, block(frames(fact)))


def _logs(incident: Incident) -> Iterator[str]:
    for log in incident.logs:
        if log.lines:
            yield from _section(f"Last lines of {cell(log.who)} on {cell(log.host)}", _quote(log))
    others = [f"- {cell(who_wrote(log))}: {_file(log)}" for log in incident.logs if not log.lines]
    yield from _section(others_title(incident), others)


def _quote(log: RankLog) -> list[str]:
    return [*block(plain(line, 300) for line in log.lines), "", _file(log)]


def _file(log: RankLog) -> str:
    """The file, linked, and what is to be said of it."""
    said = escaped(said_of(log))
    if not log.file:
        return said
    name = f"[{code(log.file)}](<{log.file}>)" if LINKED.fullmatch(log.file) else code(log.file)
    return f"{name} ({said})" if said else name


MOST_STEPS = 24
"""Of a chain; of a longer one the middle is left out."""


def chain_of(incident: Incident) -> tuple[str, ...]:
    """One line for each step of the chain of waits, with ages at the time of the verdict, and what
    it ends in."""
    verdict = incident.verdict
    if verdict is None or not verdict.chain:
        return ()
    at = incident.suspected_at if incident.confirmed_at is None else incident.confirmed_at
    lines = [_step(step, at) for step in verdict.chain]
    if len(lines) > MOST_STEPS:
        half = MOST_STEPS // 2
        lines[half:-half] = [f"… {len(lines) - 2 * half} steps more …"]
    ends = {culprit.reason: culprit_name(culprit) for culprit in verdict.culprits}
    lines += [f"{name}: {reason}" if name != "-" else reason for reason, name in ends.items()]
    return tuple(lines)


def _step(step: ChainLink, at: float) -> str:
    text = step_text(step, at)
    # A step that is about its end names it itself.
    return text if text.startswith(step.end) else f"{step.start} {text}"


def culprit_name(culprit: Culprit) -> str:
    """ "rank 3", "driver", "Rollout 2", "rank 1 (Trainer 1)" with what it runs; "-" for a node."""
    beside = culprit.actor if culprit.rank is not None else ""
    told = ", ".join(filter(None, (beside, culprit.method)))
    return f"{culprit.label or '-'}{f' ({told})' if told else ''}"


def slowed(incident: Incident) -> tuple[str, ...]:
    """Who slowed the job down before the incident, and what shows it."""
    found = incident.straggler
    return (cost_of(found), *found.evidence) if found is not None and found.whom else ()


def _timeline(incident: Incident) -> Iterator[str]:
    rows = [
        f"- {moment(step.at)} ({since(incident.suspected_at, step.at)}) **{step.what}** "
        f"{cell(step.text)}".rstrip()
        for step in timeline(incident)
    ]
    yield from _section("Timeline", rows)

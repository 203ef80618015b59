"""``report.md`` of an incident, to be pasted into an issue: the sentence, who waits for whom, who
is named and what to do; the evidence is folded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

import msgspec

from ray_sentinel.model.diagnosis import Diagnosis
from ray_sentinel.model.incident import ChainLink, Culprit, EvidenceItem, Incident, RankLog, Verdict
from ray_sentinel.report import series
from ray_sentinel.report.markdown_text import Marked, block, cell, code, escaped, table
from ray_sentinel.report.rank_logs import LINKED, others_title, sources_of, who_wrote
from ray_sentinel.report.stacks import frames, of_culprit, stack_name
from ray_sentinel.report.timeline import timeline
from ray_sentinel.report.words import cost_of, moment, percent, progress_of, since
from ray_sentinel.text import one_line
from ray_sentinel.waitgraph.chain import step_text

MOST_CHARACTERS = 60_000
"""Most characters of the report: an issue on GitHub takes 65,536."""
NOTE_CHARACTERS = 3_000
"""Characters of ``MOST_CHARACTERS`` that are reserved for saying what is left out."""
MOST_NAMED = 12
"""Most parts that are named among those left out; of the others only the number is told."""
MOST_ROWS = 24
MOST_TEXT = 300
"""Most characters of one text; the rest of a longer one is cut off."""
MOST_TITLE = 100
"""Most characters of a title where several are named; the rest of a longer one is cut off."""


class _Section(msgspec.Struct, frozen=True):
    """A part of the report; its title is text from outside, its lines are Markdown."""

    title: str
    lines: Sequence[str]
    folded: bool = False
    weight: int = 0
    """The importance of a section: of those that are not folded, the least important is cut
    first."""


def markdown(
    incident: Incident,
    files: tuple[str, ...] = (),
    diagnosis: Diagnosis | None = None,
    *,
    folds: bool = True,
) -> str:
    """The report as Markdown; ``files`` are the names beside it in the bundle, and ``diagnosis`` is
    the result from the job's time series. Without ``folds`` everything is unfolded, for a
    terminal."""
    head = [f"# {_text(incident.summary)}", "", *_facts(incident)]
    sections = [one for one in _sections(incident, files, diagnosis) if one.lines]
    if not folds:
        return "\n".join([*head, *(line for one in sections for line in _open(one))]) + "\n"
    return "\n".join([*head, *_fitted(sections, MOST_CHARACTERS - _size(head))]) + "\n"


def _fitted(sections: Sequence[_Section], room: int) -> list[str]:
    """The sections in their order, within a number of characters: none of the open ones takes more
    than half of what the more important ones leave, and a folded one is included whole or not at
    all."""
    room -= NOTE_CHARACTERS
    shown: dict[int, list[str]] = {}
    order = sorted(range(len(sections)), key=lambda n: (sections[n].folded, -sections[n].weight))
    for number in order:
        section = sections[number]
        if section.folded:
            lines = _folded(section)
            if _size(lines) > room:
                continue
        else:
            lines = _cut(section, room // 2)
        shown[number] = lines
        room -= _size(lines)
    left_out = [one.title for number, one in enumerate(sections) if number not in shown]
    return [*(line for number in sorted(shown) for line in shown[number]), *_omissions(left_out)]


def _cut(section: _Section, room: int) -> list[str]:
    """As many of the section's first lines as fit, and how many are left out."""
    kept, total = [], len(section.lines)
    said = f"*{total} lines are left out here, `report.html` has them.*"
    left = room - _size([*_open(msgspec.structs.replace(section, lines=())), "", said])
    for line in section.lines:
        left -= _size([line])
        if left < 0:
            break
        kept.append(line)
    if len(kept) < total:
        kept += ["", said.replace(str(total), f"{total - len(kept)} more", 1)]
    return _open(msgspec.structs.replace(section, lines=kept))


def _omissions(left_out: Sequence[str]) -> list[str]:
    """What is left out, and where it can be found."""
    if not left_out:
        return []
    more = f" and {len(left_out) - MOST_NAMED} more" if len(left_out) > MOST_NAMED else ""
    named = "; ".join(cell(one_line(title, MOST_TITLE)) for title in left_out[:MOST_NAMED])
    parts = "1 part is" if len(left_out) == 1 else f"{len(left_out)} parts are"
    return ["", f"{parts} left out here, `report.html` has all: {named}{more}."]


def _size(lines: Iterable[str]) -> int:
    """Characters, line ends included, as JavaScript counts them."""
    return sum(len(line) + sum(sign > "\uffff" for sign in line) + 1 for line in lines)


def _open(section: _Section) -> list[str]:
    return ["", f"## {cell(one_line(section.title, MOST_TEXT))}", "", *section.lines]


def _folded(section: _Section) -> list[str]:
    summary = escape(one_line(section.title, MOST_TEXT))
    return ["", f"<details><summary>{summary}</summary>", "", *section.lines, "", "</details>"]


def _sections(
    incident: Incident, files: tuple[str, ...], diagnosis: Diagnosis | None
) -> Iterator[_Section]:
    verdict = incident.verdict
    if verdict is not None:
        chain = [f"{number}. {_text(line)}" for number, line in enumerate(chain_of(incident), 1)]
        yield _Section("Who waits for whom", chain or _bounded(verdict.waiting), weight=1)
        yield _culprits(verdict)
        yield _Section("What to do", _bounded(verdict.next_steps), weight=2)
        against = [item for item in verdict.evidence if item.weight >= 0]
        yield _Section("Why", _evidence(against))
        others = [item for item in verdict.evidence if item.weight < 0]
        yield _Section("What speaks for the others", _evidence(others), folded=True)
        if chain:
            yield _Section("What the others wait for", _bounded(verdict.waiting), folded=True)
        yield from _stacks(verdict)
    yield from _logs(incident)
    slow = [f"- {escaped(line)}" for line in slowed(incident)]
    yield _Section("Who slowed it down before", slow, folded=True)
    if diagnosis is not None:
        told = [f"- {escaped(line)}" for line in series.lines(diagnosis)]
        yield _Section("What the time series say", told, folded=True)
    yield _timeline(incident)
    yield _Section("Files", [f"- {code(name)}" for name in files], folded=True)


def _bounded(lines: Sequence[str]) -> list[str]:
    shown = [f"- {_text(line)}" for line in lines[:MOST_ROWS]]
    return [*shown, *_more(len(lines))]


def _text(text: str) -> Marked:
    return escaped(one_line(text, MOST_TEXT))


def _more(count: int) -> list[str]:
    return [f"- {count - MOST_ROWS} more, in `incident.json`"] if count > MOST_ROWS else []


def _facts(incident: Incident) -> Iterator[str]:
    verdict = incident.verdict
    confidence = f", confidence {percent(verdict.confidence)}" if verdict else ""
    yield f"- **Kind:** {incident.kind} ({incident.severity}{confidence})"
    yield f"- **Job:** {code(one_line(incident.job, MOST_TEXT))}, attempt {incident.attempt}"
    yield f"- **State:** {progress_of(incident.state)}"
    yield f"- **Last progress:** {moment(incident.last_progress)}"
    if incident.confirmed_at is not None:
        after = since(incident.last_progress, incident.confirmed_at)
        told = f" ({after} after the last progress)" if after else ""
        yield f"- **Named:** {moment(incident.confirmed_at)}{told}"
    if incident.resolved_at is not None:
        yield f"- **Over:** {moment(incident.resolved_at)}"


def _culprits(verdict: Verdict) -> _Section:
    if not verdict.culprits:
        return _Section("Culprits", ["Nobody is named: the evidence accuses nobody."], weight=3)
    rows = [
        (
            one_line(culprit_name(culprit), MOST_TEXT),
            one_line(culprit.host, MOST_TEXT),
            "-" if culprit.pid is None else str(culprit.pid),
            one_line(culprit.reason, MOST_TEXT),
        )
        for culprit in verdict.culprits[:MOST_ROWS]
    ]
    more = _more(len(verdict.culprits))
    lines = [*table(("who", "host", "pid", "why"), rows), *(["", *more] if more else [])]
    title = "Culprits" if len(verdict.culprits) > 1 else "Culprit"
    return _Section(title, lines, weight=3)


def _evidence(items: Sequence[EvidenceItem]) -> list[str]:
    lines = []
    for item in items[:MOST_ROWS]:
        side = "against" if item.weight > 0 else "for" if item.weight < 0 else "context"
        weight = f" {item.weight:+.1f}" if item.weight else ""
        lines.append(
            f"- {_text(item.text)} *({cell(one_line(item.source, MOST_TEXT))}, {side}{weight})*"
        )
    return [*lines, *_more(len(items))]


def _stacks(verdict: Verdict) -> Iterator[_Section]:
    for fact in verdict.stacks:
        who = "culprit" if of_culprit(fact, verdict) else "waiter"
        title = f"Stack of {stack_name(fact, verdict)} ({who}, {fact.tool})"
        yield _Section(title, block(frames(fact)), folded=True)


def _logs(incident: Incident) -> Iterator[_Section]:
    for log in incident.logs:
        if log.lines:
            yield _Section(f"Last lines of {log.who} on {log.host}", _quote(log), folded=True)
    others = [log for log in incident.logs if not log.lines]
    lines = [f"- {cell(who_wrote(log))}: {_file(log)}" for log in others[:MOST_ROWS]]
    yield _Section(others_title(incident), [*lines, *_more(len(others))], folded=True)


def _quote(log: RankLog) -> list[str]:
    return [*block(one_line(line, 300) for line in log.lines), "", _file(log)]


def _file(log: RankLog) -> str:
    """The file, linked, and a remark on it."""
    said = escaped(sources_of(log))
    if not log.file:
        return said
    name = f"[{code(log.file)}](<{log.file}>)" if LINKED.fullmatch(log.file) else code(log.file)
    return f"{name} ({said})" if said else name


MOST_STEPS = 24
"""Most steps of a chain; of a longer one, the middle is left out."""


def chain_of(incident: Incident) -> tuple[str, ...]:
    """One line for each step of the chain of waits, with ages at the time of the verdict, and what
    it ends in."""
    verdict = incident.verdict
    if verdict is None or not verdict.chain:
        return ()
    lines = steps_of(incident)
    if len(lines) > MOST_STEPS:
        half = MOST_STEPS // 2
        lines[half:-half] = [f"… {len(lines) - 2 * half} steps more …"]
    ends = {culprit.reason: culprit_name(culprit) for culprit in verdict.culprits}
    lines += [f"{name}: {reason}" if name != "-" else reason for reason, name in ends.items()]
    return tuple(lines)


def steps_of(incident: Incident) -> list[str]:
    """A sentence for each step of the chain of waits, with its age at the time of the verdict."""
    at = incident.suspected_at if incident.confirmed_at is None else incident.confirmed_at
    return [_step(step, at) for step in incident.verdict.chain] if incident.verdict else []


def _step(step: ChainLink, at: float) -> str:
    text = step_text(step, at)
    # The text of a step about its end already names that end.
    return text if text.startswith(step.end) else f"{step.start} {text}"


def culprit_name(culprit: Culprit) -> str:
    """ "rank 3", "driver", "Rollout 2", "rank 1 (Trainer 1)" with what it runs; "-" for a node."""
    beside = culprit.actor if culprit.rank is not None else ""
    told = ", ".join(filter(None, (beside, culprit.method)))
    return f"{culprit.label or '-'}{f' ({told})' if told else ''}"


def slowed(incident: Incident) -> tuple[str, ...]:
    """Who slowed the job down before the incident, with the evidence."""
    found = incident.straggler
    return (cost_of(found), *found.evidence) if found is not None and found.whom else ()


def _timeline(incident: Incident) -> _Section:
    rows = [
        f"- {moment(step.at)} ({since(incident.suspected_at, step.at)}) **{step.what}** "
        f"{cell(step.text)}".rstrip()
        for step in timeline(incident)
    ]
    return _Section("Timeline", rows, folded=True)

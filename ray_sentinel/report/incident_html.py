"""``report.html``: the same report as one self-contained page, culprit and waiter side by side."""

from __future__ import annotations

from html import escape

from ray_sentinel.model.diagnosis import Diagnosis
from ray_sentinel.model.incident import Incident, RankLog, Verdict
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.report import series
from ray_sentinel.report.incident_markdown import slowed
from ray_sentinel.report.page import document, escaped, listing
from ray_sentinel.report.rank_logs import LINKED, others_title, said_of, who_wrote
from ray_sentinel.report.stacks import frames, of_culprit
from ray_sentinel.report.timeline import timeline
from ray_sentinel.report.words import moment, percent, plain, since

STYLE = """
:root { color-scheme: light dark; --line: #8884; --bad: #c62828; --good: #2e7d32; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem; line-height: 1.3 } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem }
table { border-collapse: collapse; width: 100% }
td, th { border-bottom: 1px solid var(--line); padding: .35rem .6rem; text-align: left;
  vertical-align: top }
pre { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; padding: .7rem;
  font-size: 13px; margin: .3rem 0 }
.stacks { display: grid; grid-template-columns: repeat(auto-fit, minmax(24rem, 1fr)); gap: 1rem }
.bad { color: var(--bad) } .good { color: var(--good) } .quiet { opacity: .7 }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem }
dd { margin: 0 } dt { opacity: .7 }
"""


def html(incident: Incident, diagnosis: Diagnosis | None = None) -> str:
    """The whole page; every text from outside is escaped. ``diagnosis`` is what the job's time
    series say."""
    verdict = incident.verdict
    body = [f"<h1>{escaped(incident.summary)}</h1>", _facts(incident)]
    if verdict is not None:
        body += [_culprits(verdict), listing("What to do", verdict.next_steps), _evidence(verdict)]
        body += [listing("What the others wait for", verdict.waiting), _stacks(verdict)]
    body.append(_logs(incident))
    body.append(listing("Who slowed it down before", slowed(incident)))
    if diagnosis is not None:
        body.append(listing("What the time series say", tuple(series.lines(diagnosis))))
    body.append(_timeline(incident))
    return document(incident.summary, STYLE, body)


def _facts(incident: Incident) -> str:
    verdict = incident.verdict
    named = since(incident.last_progress, incident.confirmed_at)
    rows = {
        "Kind": f"{incident.kind} ({incident.severity})",
        "Confidence": percent(verdict.confidence) if verdict else "no verdict yet",
        "Job": f"{incident.job}, attempt {incident.attempt}",
        "State": incident.state,
        "Last progress": moment(incident.last_progress),
        "Named": f"{moment(incident.confirmed_at)} {f'({named})' if named else ''}",
    }
    items = "".join(f"<dt>{key}</dt><dd>{escaped(value)}</dd>" for key, value in rows.items())
    return f"<dl>{items}</dl>"


def _culprits(verdict: Verdict) -> str:
    if not verdict.culprits:
        return "<h2>Culprits</h2><p>Nobody is named: the evidence accuses no rank.</p>"
    rows = "".join(
        f'<tr><td class="bad"><b>{"-" if c.rank is None else c.rank}</b></td>'
        f"<td>{escaped(c.host)}</td><td>{'-' if c.pid is None else c.pid}</td>"
        f"<td>{escaped(c.reason)}</td></tr>"
        for c in verdict.culprits
    )
    head = "<tr><th>rank</th><th>host</th><th>pid</th><th>why</th></tr>"
    return f"<h2>Culprits</h2><table>{head}{rows}</table>"


def _evidence(verdict: Verdict) -> str:
    rows = "".join(
        f"<tr><td>{escaped(item.source)}</td><td>{escaped(item.text)}</td>"
        f'<td class="{"bad" if item.weight > 0 else "good"}">'
        f"{f'{item.weight:+.1f}' if item.weight else ''}</td></tr>"
        for item in verdict.evidence
    )
    if not rows:
        return ""
    head = "<tr><th>source</th><th>fact</th><th>weight</th></tr>"
    return f"<h2>Why</h2><table>{head}{rows}</table>"


def _stacks(verdict: Verdict) -> str:
    if not verdict.stacks:
        return ""
    blocks = "".join(_stack(fact, of_culprit(fact, verdict)) for fact in verdict.stacks)
    return f'<h2>Stacks</h2><div class="stacks">{blocks}</div>'


def _stack(fact: StackFact, culprit: bool) -> str:
    rank = fact.rank.rank if fact.rank is not None else "?"
    who = '<b class="bad">culprit</b>' if culprit else '<span class="quiet">waiter</span>'
    lines = escape("\n".join(frames(fact)))
    label = f" {escaped(fact.label)}" if fact.label else ""
    return f"<div>rank {rank}, {who}{label}<pre>{lines}</pre></div>"


def _logs(incident: Incident) -> str:
    quoted = "".join(
        f"<h2>Last lines of rank {log.rank} on {escaped(log.host)}</h2>"
        f"<pre>{escape(chr(10).join(plain(line, 300) for line in log.lines))}</pre>"
        f"<p>{_file(log)}</p>"
        for log in incident.logs
        if log.lines
    )
    others = "".join(
        f"<li>{escaped(who_wrote(log))}: {_file(log)}</li>"
        for log in incident.logs
        if not log.lines
    )
    return quoted + (f"<h2>{others_title(incident)}</h2><ul>{others}</ul>" if others else "")


def _file(log: RankLog) -> str:
    said = escaped(said_of(log))
    name = escaped(log.file)
    if LINKED.fullmatch(log.file):
        name = f'<a href="{name}">{name}</a>'
    return f"{name} ({said})" if name and said else name or said


def _timeline(incident: Incident) -> str:
    rows = "".join(
        f"<tr><td>{escaped(moment(step.at))}</td>"
        f"<td>{escaped(since(incident.suspected_at, step.at))}</td>"
        f"<td>{escaped(step.what)}</td><td>{escaped(step.text)}</td></tr>"
        for step in timeline(incident)
    )
    return f"<h2>Timeline</h2><table>{rows}</table>"

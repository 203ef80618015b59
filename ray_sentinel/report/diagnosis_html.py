"""A diagnosis as one self-contained page: text, tables and plots, no script."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from ray_sentinel.model.diagnosis import Diagnosis, DiagnosisReport, Inventory
from ray_sentinel.report.page import document, escaped, listing
from ray_sentinel.report.svg import svg
from ray_sentinel.report.words import moment, percent
from ray_sentinel.text import clean

STYLE = """
:root { color-scheme: light dark; --line: #8884; --bad: #c62828; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.4rem; line-height: 1.3 } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem }
table { border-collapse: collapse; width: 100%; font-size: 14px }
td, th { border-bottom: 1px solid var(--line); padding: .3rem .6rem; text-align: left;
  vertical-align: top }
code { font-size: 12px; opacity: .8; overflow-wrap: anywhere }
svg { width: 100%; height: auto } svg text { font: 11px system-ui, sans-serif; fill: currentColor }
.legend { font-size: 12px; margin: 0 } .legend span { margin-right: 1rem }
.legend i { display: inline-block; width: .9em; height: .25em; margin-right: .3em;
  vertical-align: middle }
figure { margin: 1rem 0 } figcaption { font-weight: 600; font-size: 14px }
.bad { color: var(--bad) } .quiet { opacity: .7 }
pre { white-space: pre-wrap; border: 1px solid var(--line); border-radius: 6px; padding: .7rem }
"""


def html(report: DiagnosisReport) -> str:
    """The whole page; every text from outside is escaped."""
    diagnosis, inventory = report.diagnosis, report.inventory
    body = [
        f"<h1>{escaped(diagnosis.root_cause)}</h1>",
        f'<p class="quiet">{escaped(diagnosis.analysis)} · {diagnosis.outcome} · confidence '
        f"{percent(diagnosis.confidence)} · {moment(diagnosis.window[0])} to "
        f"{moment(diagnosis.window[1])} · {escaped(inventory.source)}</p>",
        _culprits(diagnosis),
        _chain(diagnosis),
        _plots(diagnosis),
        _evidence(diagnosis),
        listing("Anomalies", diagnosis.anomalies),
        listing("Log evidence", [fact.text for fact in diagnosis.logs]),
        listing("Against the log", [t for t in (report.triage, inventory.right_job) if t]),
        listing("Next steps", diagnosis.next_steps),
        _administrator(diagnosis),
        listing("Other playbooks", [f"{o.playbook}: {o.outcome}. {o.root_cause}"
                                  for o in report.others if o.playbook != diagnosis.playbook]),
        _stock(inventory),
    ]  # fmt: skip
    return document(f"Diagnosis of {inventory.source}", STYLE, body)


def _culprits(diagnosis: Diagnosis) -> str:
    if not diagnosis.culprits:
        return "<h2>Culprits</h2><p>Nobody is named.</p>"
    rows = [
        (one.host, one.gpu or "-", "/".join(p for p in (one.device, one.port) if p) or "-",
         one.reason)
        for one in diagnosis.culprits
    ]  # fmt: skip
    return "<h2>Culprits</h2>" + _table(("host", "GPU", "device", "why"), rows)


def _chain(diagnosis: Diagnosis) -> str:
    if not diagnosis.chain:
        return ""
    rows = [
        (link.role, moment(link.at) + (f" ± {link.uncertainty:.0f} s" if link.uncertainty else ""),
         link.text)
        for link in diagnosis.chain
    ]  # fmt: skip
    return "<h2>Causal chain</h2>" + _table(("", "when", "what"), rows)


def _plots(diagnosis: Diagnosis) -> str:
    figures = []
    for plot in diagnosis.plots:
        if drawing := svg(plot):
            unit = f", {escaped(plot.unit)}" if plot.unit else ""
            figures.append(
                f"<figure><figcaption>{escaped(plot.title)}{unit}</figcaption>{drawing}"
                f"<code>{escaped(plot.promql)}</code></figure>"
            )
    return f"<h2>Series</h2>{''.join(figures)}" if figures else ""


def _evidence(diagnosis: Diagnosis) -> str:
    parts = []
    if diagnosis.evidence:
        rows = [
            (fact.host or "all", fact.gpu or "-", fact.text, fact.promql or fact.source)
            for fact in diagnosis.evidence
        ]
        parts.append(_table(("host", "GPU", "what it shows", "query"), rows))
    for one in diagnosis.tables:
        parts.append(f"<h3>{escaped(one.title)}</h3><code>{escaped(one.promql)}</code>")
        parts.append(_table(one.columns, one.rows))
    return f"<h2>Evidence</h2>{''.join(parts)}" if parts else ""


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escaped(column)}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escaped(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _administrator(diagnosis: Diagnosis) -> str:
    if not diagnosis.administrator:
        return ""
    text = escape(clean(diagnosis.administrator))
    return f"<h2>For the cluster's administrator</h2><pre>{text}</pre>"


def _stock(inventory: Inventory) -> str:
    lines = [f"{count} {group} families" for group, count in inventory.families.items()]
    lines += [f"{len(inventory.hosts)} hosts, {inventory.gpus} GPUs",
              f"a sample every {inventory.interval:.0f} s"]  # fmt: skip
    return listing("What the data are worth", [*lines, *inventory.missing, *inventory.warnings])

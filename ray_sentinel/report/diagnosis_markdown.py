"""A diagnosis as Markdown, for people who were not there."""

from __future__ import annotations

from collections.abc import Sequence

from ray_sentinel.model.diagnosis import Diagnosis, DiagnosisReport, Figure, FigureTable, Inventory
from ray_sentinel.report.markdown_text import block, cell, code, escaped, table
from ray_sentinel.report.words import duration, moment, percent
from ray_sentinel.text import clean

MAX_HOSTS = 8
"""Most hosts that are listed by name."""


def markdown(report: DiagnosisReport) -> str:
    """The whole report."""
    diagnosis, inventory = report.diagnosis, report.inventory
    parts = [
        f"## TSDB Diagnosis: {escaped(inventory.source)}",
        _head(diagnosis, inventory),
        "### Findings\n\n" + _findings(diagnosis),
        "### Causal chain\n\n" + _chain(diagnosis),
        "### Metric evidence\n\n" + _evidence(diagnosis),
        "### Anomalies detected\n\n" + (_bullets(diagnosis.anomalies) or "None."),
    ]
    if diagnosis.logs:
        parts.append("### Log evidence\n\n" + _bullets([fact.text for fact in diagnosis.logs]))
    if report.triage or inventory.right_job:
        lines = [text for text in (report.triage, inventory.right_job) if text]
        parts.append("### Correlation with triage\n\n" + _bullets(lines))
    parts.append("### Recommended next steps\n\n" + (_numbered(diagnosis.next_steps) or "None."))
    if diagnosis.administrator:
        parts.append("### Report for the cluster's administrator\n\n" + _verbatim(diagnosis))
    if others := _others(report):
        parts.append("### What the other playbooks say\n\n" + others)
    parts.append("### What the data are worth\n\n" + _stock(inventory))
    return "\n\n".join(parts) + "\n"


def _verbatim(diagnosis: Diagnosis) -> str:
    """The report for the administrator, with lines of the kernel's log, to be forwarded
    unchanged."""
    return "\n".join(block(clean(diagnosis.administrator).splitlines()))


def _head(diagnosis: Diagnosis, inventory: Inventory) -> str:
    start, end = diagnosis.window
    hosts = ", ".join(cell(host) for host in inventory.hosts[:MAX_HOSTS])
    if len(inventory.hosts) > MAX_HOSTS:
        hosts += f", and {len(inventory.hosts) - MAX_HOSTS} more"
    return "\n".join(
        (
            f"**Analysis type:** {cell(diagnosis.analysis)}  ",
            f"**Time window:** {moment(start)} to {moment(end)} ({duration(end - start)})  ",
            f"**Nodes:** {len(inventory.hosts)} ({hosts})  ",
            f"**Outcome:** {diagnosis.outcome} (confidence {percent(diagnosis.confidence)})",
        )
    )


def _findings(diagnosis: Diagnosis) -> str:
    lines: list[str] = [escaped(diagnosis.root_cause)]
    if diagnosis.culprits:
        lines.append("")
        lines += table(
            ("Host", "GPU", "Device", "Why"),
            [
                (one.host, one.gpu or "-",
                 "/".join(part for part in (one.device, one.port) if part) or "-", one.reason)
                for one in diagnosis.culprits
            ],
        )  # fmt: skip
    return "\n".join(lines)


def _chain(diagnosis: Diagnosis) -> str:
    if not diagnosis.chain:
        return "None."
    lines = []
    for number, link in enumerate(diagnosis.chain, 1):
        doubt = f" (± {link.uncertainty:.0f} s)" if link.uncertainty else ""
        lines.append(f"{number}. **{link.role}**, {moment(link.at)}{doubt}: {cell(link.text)}")
    return "\n".join(lines)


def _evidence(diagnosis: Diagnosis) -> str:
    lines: list[str] = []
    if diagnosis.evidence:
        lines += table(
            ("Host", "GPU", "Value", "Interpretation", "Query"),
            [
                (fact.host or "all", fact.gpu or "-", _value(fact), fact.text,
                 code(fact.promql) if fact.promql else fact.source)
                for fact in diagnosis.evidence
            ],
        )  # fmt: skip
    for one in diagnosis.tables:
        lines += ["", *_table(one)]
    return "\n".join(lines) or "None."


def _value(fact: Figure) -> str:
    if fact.value is None:
        return "-"
    return f"{fact.value:,.4g} {fact.unit}".strip()


def _table(one: FigureTable) -> list[str]:
    title = f"**{cell(one.title)}**" + (f" ({code(one.promql)})" if one.promql else "")
    return [title, "", *table(one.columns, one.rows)]


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {escaped(line)}" for line in lines)


def _numbered(lines: Sequence[str]) -> str:
    return "\n".join(f"{number}. {escaped(line)}" for number, line in enumerate(lines, 1))


def _others(report: DiagnosisReport) -> str:
    return _bullets(
        [
            f"{other.playbook}: {other.outcome}. {other.root_cause}"
            for other in report.others
            if other.playbook != report.diagnosis.playbook
        ]
    )


def _stock(inventory: Inventory) -> str:
    lines = [
        ", ".join(f"{count} {group}" for group, count in inventory.families.items())
        + f" families; {inventory.gpus} GPUs; a sample every {inventory.interval:.0f} s, "
        f"looked at every {inventory.cell:.0f} s"
    ]
    if inventory.span is not None:
        lines.append(f"data from {moment(inventory.span[0])} to {moment(inventory.span[1])}")
    if inventory.steps is not None:
        lines.append(f"steps {inventory.steps[0]:.0f} to {inventory.steps[1]:.0f}")
    return _bullets([*lines, *inventory.missing, *inventory.warnings])

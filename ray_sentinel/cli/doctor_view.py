"""The doctor's answer for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.markup import escape

from ray_sentinel.cli.output import clean, print_json
from ray_sentinel.cli.terminal import Console
from ray_sentinel.doctor.check import Check, CheckResult, Cluster

_MARKS = {
    "ok": "[green]ok[/]     ",
    "warning": "[yellow]warning[/]",
    "failure": "[red]failure[/]",
    "skipped": "[dim]skipped[/]",
}


def print_results(
    results: Sequence[CheckResult], hosts: Sequence[str], cluster: Cluster | None, note: str
) -> None:
    """One line each; the remedy below what is wrong."""
    console = Console(highlight=False, emoji=False, soft_wrap=True)
    where = f"Ray cluster {cluster.address}" if cluster else "this machine"
    console.print(f"examined {_safe(where)}: {len(hosts)} node{'s' if len(hosts) != 1 else ''}")
    if note:
        console.print(f"[dim]{_safe(note)}[/]")
    for result in results:
        host = f"[bold]{_safe(result.host)}[/]: " if result.host else ""
        name = _safe(f"{result.check:17}")
        console.print(f"{_MARKS[result.outcome]} {name} {host}{_safe(result.seen)}")
        if result.remedy:
            console.print(f"{'':26}[dim]→[/] {_safe(result.remedy)}")
    counts = {kind: sum(r.outcome == kind for r in results) for kind in _MARKS}
    console.print(", ".join(f"{count} {kind}" for kind, count in counts.items() if count))


def print_checks(checks: Iterable[Check[Any]], *, as_json: bool) -> None:
    """What there is to check."""
    if as_json:
        print_json([{"name": check.name, "about": check.about} for check in checks])
        return
    console = Console(highlight=False, emoji=False)
    for check in checks:
        console.print(_safe(f"{check.name:17} {check.about}"))


def _safe(text: str) -> str:
    return escape(clean(text.replace("\n", "\\n")))

"""Explain stacks: which rank the others wait for, and what it does instead.

    ray-sentinel explain stacks backtraces/
    ray-sentinel explain stacks first_look/ second_look/ --json

Files are outputs of py-spy (text, --native, --json), pystack, gdb, cuda-gdb, faulthandler, or
kernel stacks, best named TOOL_HOST_PID.txt (pyspy_node07_4711.txt). Files of one process are
merged; if a process was looked at several times, the looks are compared.

Exit codes: 0 the stacks set nobody apart; 1 they do; 2 wrong usage, or there are no stacks, or they
set nobody apart and a path that was named holds none.
"""

from __future__ import annotations

import argparse
from typing import Any

from ray_sentinel.cli.named_paths import exit_code
from ray_sentinel.cli.output import console, print_json, print_next_steps, text_printer
from ray_sentinel.cli.stack_files import StackFiles, load
from ray_sentinel.evidence.stacks import merge, render, who
from ray_sentinel.model.fault_kinds import KINDS
from ray_sentinel.model.incident import Culprit
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.report.words import percent
from ray_sentinel.waitgraph.stacks import Explanation, explain

_NOTES = {True: " (waits for others)", False: " (does not wait for others)", None: ""}

HELP = "explain py-spy, gdb, cuda-gdb and kernel stacks"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The explainer's options."""
    parser.add_argument("paths", nargs="+", metavar="PATH", help="file of stacks, or a folder")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.add_argument(
        "--tree", action="store_true", help="also print the merged tree of all stacks"
    )


def run(args: argparse.Namespace) -> int:
    """Explain and print. Raises InputError if nothing can be read."""
    files = load(args.paths)
    rounds = files.facts()
    found = explain(rounds)
    if args.json:
        print_json(as_dict(found, files))
    else:
        _print(found, files, tree=args.tree)
    return exit_code(bool(found.culprits) or found.kind == "stall", list(files.failed.values()))


def as_dict(found: Explanation, files: StackFiles) -> dict[str, Any]:
    """The JSON that ``--json`` prints."""
    return {
        "culprit_ranks": sorted({c.rank for c in found.culprits if c.rank is not None}),
        "culprits": found.culprits,
        "kind": found.kind,
        "confidence": found.confidence,
        "evidence": [item.text for item in found.evidence],
        "waiting": found.waiting,
        "rounds": len(files.rounds),
        "classes": [
            {
                "count": item.count,
                "waits_for_others": item.waits_for_others,
                "activity": item.activity,
                "operation": item.operation,
                "label": item.label,
                "signature": item.signature,
                "members": [_identity(fact) for fact in item.members],
            }
            for item in found.classes
        ],
        "processes": [
            {
                **_identity(fact),
                "tool": fact.tool,
                "thread": fact.thread,
                "activity": fact.activity,
                "label": fact.label,
                "waits_for_others": fact.waits_for_others,
                "movement": found.movements.get(fact.process, "unknown"),
                "kernels": fact.kernels,
                "helper": fact.helper,
                "error": fact.error,
            }
            for fact in (*(f for c in found.classes for f in c.members), *found.helpers)
        ],
        "files": files.read,
        "skipped": files.skipped,
    }


def _identity(fact: StackFact) -> dict[str, Any]:
    return {
        "rank": fact.rank.rank if fact.rank else None,
        "host": fact.process.host,
        "pid": fact.process.pid or None,
    }


def _name(culprit: Culprit) -> str:
    place = f"pid {culprit.pid or '?'}" + (f" on {culprit.host}" if culprit.host else "")
    return f"rank {culprit.rank} ({place})" if culprit.rank is not None else place


def _print(found: Explanation, files: StackFiles, *, tree: bool) -> None:
    say = text_printer()
    names = ", ".join(map(_name, found.culprits))
    headline = f"{found.kind}: {names or 'nobody is named'}, confidence {percent(found.confidence)}"
    say(headline, "bold red" if found.culprits else "bold")
    for line in found.evidence:
        say(f"  {line.text}")
    if found.culprits:
        print_next_steps(say, KINDS[found.kind].next_steps)
    for item in found.classes[:20]:
        note = _NOTES[item.waits_for_others]
        say(f"\n{item.count} × {item.label or 'no stack'}{note}: {who(item.members)}", "bold")
        for place in reversed(item.signature[-8:]):
            say(f"    {place[:160]}")
    if len(found.classes) > 20:
        say(f"... and {len(found.classes) - 20} classes more: --json has them all")
    if tree:
        say("\n" + render(merge(found.classes), found.classes, width=console().width))
    for reason in files.skipped[:10]:
        say(f"skipped: {reason}", "dim")
    if len(files.skipped) > 10:
        say(f"... and {len(files.skipped) - 10} files more were skipped", "dim")

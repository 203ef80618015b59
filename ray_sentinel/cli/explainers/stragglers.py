"""Find who slows a job down, in PyTorch flight-recorder dumps of all its ranks.

    ray-sentinel explain stragglers dumps/
    ray-sentinel explain stragglers dumps/ --ranks status.json --json

From the times at which each rank called each collective, or how long its device was in it where
that was timed, follows how long each rank was busy, and how long it waited for others. The clocks
of hosts are assumed to agree.

Exit codes: 0 nobody is slow; 1 somebody is; 2 wrong usage, or no dump can be read, or nobody is
slow in the others but one that was named cannot be read.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from ray_sentinel.cli.named_paths import exit_code
from ray_sentinel.cli.options import add_prefix
from ray_sentinel.cli.output import print_json, text_printer
from ray_sentinel.cli.rank_table import rank_table
from ray_sentinel.cli.recorder_files import find
from ray_sentinel.errors import InputError
from ray_sentinel.evidence.stragglers import explain
from ray_sentinel.model.rank_names import name_ranks
from ray_sentinel.model.straggler import StragglerFacts
from ray_sentinel.report.words import percent

HELP = "find slow ranks in PyTorch flight-recorder dumps"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The explainer's options."""
    parser.add_argument("paths", nargs="+", metavar="PATH", help="folder of dumps, or a dump")
    add_prefix(parser)
    parser.add_argument(
        "--ranks",
        metavar="FILE",
        help="JSON with the hosts of the ranks, such as from `status --json`",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(args: argparse.Namespace) -> int:
    """Explain and print. Raises InputError if nothing can be read."""
    files = find(args.paths, args.prefix)
    table = rank_table(args.ranks) if args.ranks else {}
    hosts = {rank: host for (host, _), rank in table.items()}
    facts = explain(files.dumps(whole=True), names=files.names, hosts=hosts)
    if facts.problems and len(facts.problems) == len(files.paths):
        raise InputError("no dump could be read: " + "; ".join(facts.problems[:4]))
    if args.json:
        print_json(as_dict(facts))
    else:
        _print(facts)
    bad = {rank for rank, name in files.names.items() if _about(name, facts.problems)}
    return exit_code(bool(facts.ranks), files.unread(args.paths, files.paths.keys() - bad))


def _about(name: str, problems: Sequence[str]) -> bool:
    return any(problem.startswith(f"{name} ") for problem in problems)


def as_dict(facts: StragglerFacts) -> dict[str, Any]:
    """The JSON that ``--json`` prints."""
    return {
        "culprit_ranks": facts.ranks,
        "kind": facts.kind,
        "confidence": facts.confidence,
        "evidence": facts.evidence,
        "host": facts.host,
        "cost_percent": round(100 * facts.cost, 1),
        "seconds": facts.seconds,
        "rounds": facts.rounds,
        "busy": facts.busy,
        "problems": facts.problems,
    }


def _print(facts: StragglerFacts) -> None:
    say = text_printer()
    who = name_ranks(facts.ranks) if facts.ranks else "nobody is named"
    headline = f"{facts.kind}: {who}, confidence {percent(facts.confidence)}"
    say(headline, "bold red" if facts.ranks else "bold")
    for text in facts.evidence:
        say(f"  {text}")
    for busy in facts.busy[:16]:
        where = f" on {busy.host}" if busy.host else ""
        say(f"  rank {busy.rank}{where}: busy {busy.share:.0%}, {busy.ratio:.2f} of the usual")
    for problem in facts.problems[:10]:
        say(f"problem: {problem}", "yellow")

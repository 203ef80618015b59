"""Explain PyTorch flight-recorder dumps: which ranks hang the job, and what all others wait for.

    ray-sentinel explain flight-recorder dumps/
    ray-sentinel explain flight-recorder dumps/_dump_* --json
    ray-sentinel explain flight-recorder second/ --earlier first/

A dump is a file PREFIX<rank>, pickle or JSON, as the watchdog writes it (TORCH_FR_DUMP_TEMP_FILE,
formerly TORCH_NCCL_DEBUG_INFO_TEMP_FILE) or ray-sentinel collects it. Pickles are read without
running anything in them.

Exit codes: 0 nothing hangs (nothing is pending, or the job was moving); 1 ranks hang, whether or
not it can be told who holds them up; 2 wrong usage, or there is no dump that can be read, or
nothing hangs in the others but one that was named cannot be read.
"""

from __future__ import annotations

import argparse
from typing import Any

from ray_sentinel.cli.named_paths import exit_code
from ray_sentinel.cli.options import add_prefix
from ray_sentinel.cli.output import print_json, print_next_steps, text_printer
from ray_sentinel.cli.recorder_files import RecorderFiles, find
from ray_sentinel.errors import InputError
from ray_sentinel.evidence.flight_recorder.libraries import combine, library
from ray_sentinel.model.fault_kinds import EVIDENCE_STEPS
from ray_sentinel.model.rank_names import name_ranks
from ray_sentinel.model.recorder import RecorderFacts, describe_waits
from ray_sentinel.report.words import percent
from ray_sentinel.text import counted
from ray_sentinel.waitgraph.confidence import of_tool
from ray_sentinel.waitgraph.recorder import explain

HELP = "explain PyTorch flight-recorder dumps"

HEALTHY = ("waiting-outside", "running")
"""Kinds of answers with which nothing hangs."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The explainer's options."""
    parser.add_argument("paths", nargs="+", metavar="PATH", help="folder of dumps, or a dump")
    add_prefix(parser)
    parser.add_argument(
        "--earlier",
        metavar="PATH",
        help="dumps from some seconds before; ranks that went on since then are not stuck",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(args: argparse.Namespace) -> int:
    """Explain and print. Raises InputError if nothing can be read."""
    files = find(args.paths, args.prefix)
    facts = files.explained(find([args.earlier], args.prefix) if args.earlier else None)
    if files.others and facts.ranks:
        facts = _with_other_libraries(facts, files)
    if not facts.ranks:
        raise InputError("no dump could be read: " + "; ".join(facts.problems[:4]))
    if args.json:
        print_json(as_dict(facts, files))
    else:
        _print(facts, files)
    return exit_code(facts.kind not in HEALTHY, files.unread(args.paths, facts.ranks))


def _with_other_libraries(facts: RecorderFacts, files: RecorderFiles) -> RecorderFacts:
    """Another library's dumps of the same ranks show who waits there."""
    mine = library(files.dumps())
    sets = [dumps for dumps in files.beside() if library(dumps) not in ("", mine)]
    return combine([facts, *(explain(dumps) for dumps in sets)]) if sets else facts


def as_dict(facts: RecorderFacts, files: RecorderFiles) -> dict[str, Any]:
    """The JSON that ``--json`` prints."""
    return {
        "culprit_ranks": [culprit.rank for culprit in facts.culprits],
        "culprits": facts.culprits,
        "kind": facts.kind,
        "confidence": of_tool(facts),
        "evidence": facts.evidence,
        "waits": facts.waits,
        "problems": facts.problems,
        "ranks": facts.ranks,
        "ignored": files.ignored,
    }


def _print(facts: RecorderFacts, files: RecorderFiles) -> None:
    say = text_printer()
    ranks = [culprit.rank for culprit in facts.culprits]
    headline = f"{facts.kind}: {name_ranks(ranks) if ranks else 'nobody is named'}"
    read = f"confidence {percent(of_tool(facts))}, {counted(len(facts.ranks), 'dump')} read"
    say(f"{headline}, {read}", "bold red" if ranks else "bold")
    for line in facts.evidence:
        say(f"  {line}")
    alike = describe_waits(facts.waits)
    if alike:
        say("\nThe others wait:" if ranks else "\nWho waits for whom:", "bold")
    for waiting, where in alike[:40]:
        say(f"  {name_ranks(waiting)}: {where}")
    if len(alike) > 40:
        say(f"  ... and {len(alike) - 40} groups of ranks more: --json has them all")
    print_next_steps(say, [EVIDENCE_STEPS[facts.kind]])
    for problem in facts.problems[:20]:
        say(f"problem: {problem}", "yellow")
    for reason in files.ignored[:10]:
        say(f"ignored: {reason}", "dim")
    if len(files.ignored) > 10:
        say(f"... and {len(files.ignored) - 10} files more were ignored", "dim")

"""Explain answers of NCCL's RAS service: dead, silent and lagging ranks.

    ncclras -f json > poll1.json; sleep 10; ncclras -f json > poll2.json
    ray-sentinel explain nccl-ras poll1.json poll2.json
    echo verbose status | nc localhost 28028 | ray-sentinel explain nccl-ras /dev/stdin

Text and JSON of NCCL 2.24 and later and of RCCL are read, as well as the malformed JSON of 2.28.9,
incomplete outputs, several outputs in one file, and events of monitoring mode. One poll of a job
that moves looks like one of a job that hangs: give two, some seconds apart, the oldest first.

Exit codes: 0 the job moves, or nothing is found (which RAS cannot prove: it does not count sends
and receives); 1 something is found; 2 wrong usage, or there is no answer of RAS in the files, or
nothing is found in the others but one that was named has none.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ray_sentinel.capture.ras_process import explain_in_process
from ray_sentinel.cli.named_paths import exit_code
from ray_sentinel.cli.output import print_json, print_next_steps, text_printer
from ray_sentinel.cli.rank_table import rank_table
from ray_sentinel.cli.ras_files import content, load
from ray_sentinel.errors import InputError
from ray_sentinel.model.fault_kinds import EVIDENCE_STEPS
from ray_sentinel.model.ras import RasCulprit, RasFacts
from ray_sentinel.report.words import percent
from ray_sentinel.text import counted
from ray_sentinel.waitgraph.confidence import of_tool

HELP = "explain answers of NCCL RAS: ncclras, or STATUS on port 28028"

SECONDS = 60.0
"""Seconds that reading all files together may take."""
QUIET = ("running", "no-mismatch")
"""Kinds of answers with which nothing is found."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The explainer's options."""
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="FILE",
        help="answer of RAS, or a folder of them; the oldest first",
    )
    parser.add_argument(
        "--ranks",
        metavar="FILE",
        help="JSON with the host and pid of the job's ranks, such as from `status --json`",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(args: argparse.Namespace) -> int:
    """Explain and print. Raises InputError if nothing can be read."""
    ranks = rank_table(args.ranks) if args.ranks else None
    polls, failed = _load(args.paths)
    facts = explain_in_process(polls, ranks=ranks, seconds=SECONDS)
    if not facts.polls:
        raise InputError("; ".join([*facts.problems, *failed][:4]))
    if args.json:
        print_json(as_dict(facts))
    else:
        _print(facts)
    bad = [problem for problem in facts.problems if problem.startswith(_beginnings(args.paths))]
    return exit_code(facts.kind not in QUIET, [*failed, *bad])


def _beginnings(paths: list[str]) -> tuple[str, ...]:
    """The beginning of the reader's message about a named file that is no answer of RAS."""
    return tuple(f"{Path(path)}: " for path in paths)


def _load(paths: list[str]) -> tuple[dict[str, bytes], list[str]]:
    if paths == ["/dev/stdin"] or paths == ["-"]:
        import sys

        return {"standard input": content(sys.stdin.buffer)}, []
    return load(paths)


def as_dict(facts: RasFacts) -> dict[str, Any]:
    """The JSON that ``--json`` prints."""
    return {
        "culprit_ranks": sorted({c.rank for c in facts.culprits if c.rank is not None}),
        "culprits": facts.culprits,
        "kind": facts.kind,
        "confidence": of_tool(facts),
        "evidence": facts.evidence,
        "waits": facts.waits,
        "problems": facts.problems,
        "library": facts.library,
        "version": facts.version,
        "polls": facts.polls,
        "communicators": facts.communicators,
    }


def _print(facts: RasFacts) -> None:
    say = text_printer()
    names = "; ".join(map(_name, facts.culprits)) or "nobody is named"
    say(
        f"{facts.kind}: {names}, confidence {percent(of_tool(facts))}",
        "bold red" if facts.culprits else "bold",
    )
    version = f"{facts.library} {facts.version}, " if facts.version else ""
    say(
        f"  {version}{counted(facts.polls, 'poll')}, "
        f"{counted(facts.communicators, 'communicator')}",
        "dim",
    )
    for line in facts.evidence:
        say(f"  {line}")
    print_next_steps(say, [EVIDENCE_STEPS[facts.kind]])
    for problem in facts.problems[:20]:
        say(f"problem: {problem}", "yellow")


def _name(culprit: RasCulprit) -> str:
    place = f"pid {culprit.pid} on {culprit.host}" if culprit.pid is not None else ""
    if culprit.rank is None:
        return place or "a rank of unknown number"
    return f"rank {culprit.rank}" + (f" ({place})" if place else "")

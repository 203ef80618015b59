"""Explain all that is in a folder together: one answer, who says so, and what contradicts it.

    ray-sentinel explain DIR
    ray-sentinel explain log_dir/incidents/20260102T030405Z-gil-held-0003 --json

Flight-recorder dumps, stacks (py-spy, gdb, cuda-gdb, faulthandler, kernel), answers of NCCL RAS,
logs, and an incident's record are recognised by their content, explained each by its own explainer,
and weighed as the live verdict weighs them. What was not recognised or cannot be read is listed.

Exit codes: 0 nothing is found; 1 something is; 2 wrong usage, or nothing can be explained, or
nothing is found in what could be read and a part could not be read.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import msgspec

from ray_sentinel.cli.commands import explain as command
from ray_sentinel.cli.commands import triage
from ray_sentinel.cli.evidence_folder import FolderFiles, read_folder
from ray_sentinel.cli.explainers import flight_recorder, nccl_ras
from ray_sentinel.cli.named_paths import exit_code
from ray_sentinel.cli.output import Printer, print_json, print_next_steps, text_printer
from ray_sentinel.cli.weighing import Weighing, print_weighing, weighing
from ray_sentinel.engine.incidents.evidence_case import (
    FolderEvidence,
    judged,
    recorded_items,
)
from ray_sentinel.errors import InputError
from ray_sentinel.model.incident import EvidenceItem
from ray_sentinel.model.rank_names import name_ranks
from ray_sentinel.model.ras import RasFacts
from ray_sentinel.model.recorder import RecorderFacts
from ray_sentinel.model.triage import Triage
from ray_sentinel.report.words import percent
from ray_sentinel.text import counted
from ray_sentinel.waitgraph.confidence import of_tool
from ray_sentinel.waitgraph.stacks import Explanation

HELP = "explain everything in a folder together (what `explain DIR` means)"

_WELL = {
    "flight-recorder": flight_recorder.HEALTHY,
    "stacks": ("unknown",),
    "nccl-ras": nccl_ras.QUIET,
    "logs": triage.WELL,
}
"""For each witness, the kinds of answers with which its own command exits with 0."""


Explained: TypeAlias = RecorderFacts | Explanation | RasFacts | Triage
"""What the explainer of one kind of evidence returns."""


class FolderWitness(msgspec.Struct, frozen=True, kw_only=True):
    """What one kind of evidence says by itself."""

    source: str
    kind: str
    confidence: float
    ranks: tuple[int, ...]
    """The ranks that this witness names."""
    text: str
    files: int

    @property
    def finds(self) -> bool:
        """Whether something is wrong by this evidence alone."""
        return bool(self.ranks) or self.kind not in _WELL.get(self.source, ())


class FolderAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer for a folder."""

    kind: str
    sentence: str
    confidence: float
    culprits: list[dict[str, Any]]
    """The culprits, each with the witnesses that speak for it (``named_by``) and against it
    (``not_named_by``)."""
    evidence: list[EvidenceItem]
    waiting: tuple[str, ...]
    next_steps: tuple[str, ...]
    witnesses: list[FolderWitness]
    contradictions: list[str]
    reservation: str
    """Why the live engine would wait before it reports this; empty if it would not wait."""
    why: Weighing | None = None
    """What was weighed; None if it was not asked for, or there was nothing to weigh."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The explainer's options."""
    parser.add_argument("folder", metavar="DIR", help="folder to explain")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.add_argument(
        "--why", action="store_true", help="also show what was weighed, rank by rank"
    )


def run(args: argparse.Namespace) -> int:
    """Explain and print. Raises InputError if nothing can be explained."""
    try:
        found = read_folder(args.folder)
    except InputError as error:
        if "there is no such file" not in str(error):
            raise
        kinds = ", ".join(command.kinds_of_evidence())
        raise InputError(f"{error}; and no KIND of evidence, which are {kinds}") from None
    answer = answered(found)
    if not args.why:
        answer = msgspec.structs.replace(answer, why=None)
    if args.json:
        print_json(as_dict(answer, found))
    else:
        _print(answer, found)
    finds = bool(answer.culprits) or any(one.finds for one in answer.witnesses)
    return exit_code(finds, found.problems if not finds else [])


def answered(found: FolderFiles) -> FolderAnswer:
    """All that was found, weighed into one answer."""
    evidence = FolderEvidence(
        rounds=_with_ranks(found),
        recorder=found.recorder,
        ras=found.ras,
        incident=found.incident,
        processes=found.processes,
    )
    recorded = recorded_items(evidence)
    witnesses = list(_witnesses(found, recorded))
    ranked = any(fact.rank for facts in evidence.rounds for fact in facts)
    if not (ranked or found.recorder or found.ras or recorded):
        return _of_one(found, witnesses)
    judgement = judged(evidence)
    verdict = judgement.verdict
    if not verdict.culprits and not any(one.finds for one in witnesses):
        # The live engine judges jobs that have fallen silent; nothing here shows that this one has.
        surest = max(witnesses, key=lambda one: one.confidence)
        verdict = msgspec.structs.replace(
            verdict, kind="unknown", summary=f"nothing here shows a hang: {surest.text}"
        )
    culprits = []
    for one in verdict.culprits:
        accusing = {e.source for e in verdict.evidence if e.rank == one.rank and e.weight > 0}
        accusing |= {w.source for w in witnesses if one.rank in w.ranks}
        others = [w.source for w in witnesses if w.ranks and w.source not in accusing]
        row = {"rank": one.rank, "host": one.host, "pid": one.pid, "reason": one.reason}
        culprits.append({**row, "named_by": sorted(accusing), "not_named_by": others})
    return FolderAnswer(
        kind=verdict.kind,
        sentence=verdict.summary,
        confidence=verdict.confidence,
        culprits=culprits,
        evidence=list(verdict.evidence),
        waiting=verdict.waiting,
        next_steps=verdict.next_steps,
        witnesses=witnesses,
        contradictions=list(
            _contradictions(found, witnesses, {one.rank for one in verdict.culprits})
        ),
        reservation=judgement.why if judgement.decision != "confirm" and culprits else "",
        why=weighing(judgement.scores, {one.rank for one in verdict.culprits}),
    )


def _with_ranks(found: FolderFiles) -> list[list[Any]]:
    helpers = {fact.process for fact in found.stacks.helpers} if found.stacks else set()
    return [
        [fact for fact in facts if fact.rank is not None and fact.process not in helpers]
        for facts in found.rounds
    ]


def _of_one(found: FolderFiles, witnesses: list[FolderWitness]) -> FolderAnswer:
    """Stacks of processes without ranks, or logs: there is nothing to weigh them with."""
    stacks, logs = found.stacks, found.logs
    told = logs if logs is not None and (stacks is None or not stacks.culprits) else None
    one = next((w for w in witnesses if w.source == ("logs" if told else "stacks")), None)
    culprits: list[dict[str, Any]] = []
    if told is not None:
        culprits = [
            {"rank": c.rank, "host": c.node or c.ip, "pid": c.pid, "reason": c.reason}
            for c in told.culprits
        ]
    elif stacks is not None:
        culprits = [
            {"rank": c.rank, "host": c.host, "pid": c.pid, "reason": c.reason}
            for c in stacks.culprits
        ]
    named_by = {"named_by": [one.source] if one else [], "not_named_by": []}
    return FolderAnswer(
        kind=one.kind if one else "unknown",
        sentence=one.text if one else "the incident's record tells nothing that can be judged anew",
        confidence=one.confidence if one else 0.0,
        culprits=[row | named_by for row in culprits],
        evidence=list(stacks.evidence) if stacks is not None and told is None else [],
        waiting=stacks.waiting if stacks is not None else (),
        next_steps=told.next_steps if told is not None else (),
        witnesses=witnesses,
        contradictions=list(_contradictions(found, witnesses, {c["rank"] for c in culprits})),
        reservation="",
    )


def _witnesses(found: FolderFiles, recorded: Sequence[EvidenceItem]) -> Iterator[FolderWitness]:
    count = Counter(found.kinds.values())
    told: tuple[tuple[str, Explained | None], ...] = (
        ("flight-recorder", found.recorder),
        ("stacks", found.stacks),
        ("nccl-ras", found.ras),
        ("logs", found.logs),
    )
    for source, explained in told:
        if explained is not None:
            yield FolderWitness(
                source=source,
                kind=explained.kind,
                confidence=_confidence(explained),
                ranks=tuple(one.rank for one in explained.culprits if one.rank is not None),
                text=_describe(explained),
                files=count[source],
            )
    for source in sorted({item.source for item in recorded}):
        items = [item for item in recorded if item.source == source]
        yield FolderWitness(
            source=source,
            kind=found.incident.kind if found.incident is not None else "unknown",
            confidence=0.0,
            ranks=tuple(
                {item.rank: 0 for item in items if item.rank is not None and item.weight > 0}
            ),
            text="as recorded: " + "; ".join(item.text for item in items[:2]),
            files=1,
        )


def _confidence(explained: Explained) -> float:
    if isinstance(explained, RecorderFacts | RasFacts):
        return of_tool(explained)
    return explained.confidence


def _describe(explained: Explained) -> str:
    """What one explainer found, in a line."""
    if isinstance(explained, Triage):
        return explained.summary
    items = explained.evidence[:2]
    return "; ".join(item if isinstance(item, str) else item.text for item in items)


def _contradictions(
    found: FolderFiles, witnesses: list[FolderWitness], named: set[int | None]
) -> Iterator[str]:
    for one in witnesses:
        if others := sorted(set(one.ranks) - named):
            yield f"{one.source} names {name_ranks(others)} ({one.kind}), the answer does not"
    told = found.incident.verdict if found.incident is not None else None
    before = {one.rank for one in told.culprits} if told is not None else named
    if told is not None and before != named:
        yield f"the incident was told as: {told.summary}"
    unranked = {fact.process for facts in found.rounds for fact in facts if fact.rank is None}
    unranked -= {fact.process for fact in found.stacks.helpers} if found.stacks else set()
    if unranked and (found.recorder is not None or found.ras is not None):
        of = counted(len(unranked), "process", "es")
        yield (
            f"the stacks of {of} have no rank, so they are not weighed with the rest: a "
            'ranks.json, a list of {"host", "pid", "rank"}, tells their ranks'
        )
    for item in found.stacks.processes if found.stacks else ():
        if item in unranked:
            yield f"the stacks accuse pid {item.pid} on {item.host or '?'}, whose rank is not known"


def as_dict(answer: FolderAnswer, found: FolderFiles) -> dict[str, Any]:
    """The JSON that ``--json`` prints."""
    plain: dict[str, Any] = msgspec.to_builtins(answer)
    if answer.why is None:
        del plain["why"]
    ranks = {one["rank"] for one in answer.culprits if one["rank"] is not None}
    return {
        "culprit_ranks": sorted(ranks),
        **plain,
        "files": found.kinds,
        "not_recognised": found.unknown,
        "problems": found.problems,
    }


def _print(answer: FolderAnswer, found: FolderFiles) -> None:
    say = text_printer()
    style = "bold red" if answer.culprits else "bold"
    sentence = answer.sentence.removesuffix(".")
    sure = f", confidence {percent(answer.confidence)}" if answer.confidence else ""
    say(f"{answer.kind}: {sentence}{sure}", style)
    if answer.reservation:
        say(f"  live, this would not be told at once: {answer.reservation}", "yellow")
    for one in answer.culprits:
        who = f"rank {one['rank']}" if one["rank"] is not None else f"pid {one['pid']}"
        place = f" on {one['host']}" if one["host"] else ""
        by = counted(len(one["named_by"]), "witness", "es")
        names = ", ".join(one["named_by"])
        say(f"  {who}{place}: {one['reason']}; named by {by}: {names}")
    print_next_steps(say, answer.next_steps)
    say("\nWitnesses:", "bold")
    for witness in answer.witnesses:
        names = name_ranks(sorted(set(witness.ranks))) if witness.ranks else "nobody"
        files = counted(witness.files, "file")
        say(f"  {witness.source} ({files}): {witness.kind}, names {names}: {witness.text[:300]}")
    if answer.contradictions:
        say("\nWhat contradicts, or could not be joined:", "bold")
    for line in answer.contradictions:
        say(f"  {line}", "yellow")
    if answer.why is not None:
        print_weighing(answer.why, say)
    if answer.waiting:
        say("\nThe others wait:" if answer.culprits else "\nWho waits for whom:", "bold")
    for line in answer.waiting[:20]:
        say(f"  {line}")
    _print_left_out(found, say)


def _print_left_out(found: FolderFiles, say: Printer) -> None:
    """The parts of the folder that are not in the answer."""
    for problem in found.problems[:20]:
        say(f"problem: {problem}", "yellow")
    if len(found.problems) > 20:
        say(f"... and {len(found.problems) - 20} problems more: --json has them all", "yellow")
    for name in found.unknown[:10]:
        say(f"not recognised: {name}", "dim")
    if len(found.unknown) > 10:
        say(f"... and {len(found.unknown) - 10} files more that were not recognised", "dim")

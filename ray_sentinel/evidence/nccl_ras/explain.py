"""From the bytes of polls to an explanation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ray_sentinel.errors import InputError
from ray_sentinel.evidence.logs.errors.watchdog import read_work
from ray_sentinel.evidence.nccl_ras.context import RasContext
from ray_sentinel.evidence.nccl_ras.dead_ranks import judge_gone, judge_unlisted
from ray_sentinel.evidence.nccl_ras.failed import judge_errors
from ray_sentinel.evidence.nccl_ras.laggards import judge_counts
from ray_sentinel.evidence.nccl_ras.load import in_order, read
from ray_sentinel.evidence.nccl_ras.memberships import judge_memberships
from ray_sentinel.evidence.nccl_ras.meshes import looks
from ray_sentinel.evidence.nccl_ras.movement import judge_movement, judge_table
from ray_sentinel.evidence.nccl_ras.poll import Poll
from ray_sentinel.evidence.nccl_ras.world import Known, Names
from ray_sentinel.model.ras import RasFacts

MOST_CHARACTERS = 4096
"""Most characters of a line that are searched for the watchdog's words; the rest is not read."""
EVIDENCE = (
    judge_gone,
    judge_errors,
    judge_counts,
    judge_memberships,
    judge_unlisted,
    judge_table,
    judge_movement,
)
"""The judges in the order in which they are asked, the hardest evidence first. The first that
concludes decides; the others add what they see."""


def explain(files: Mapping[str, bytes], *, ranks: Known | None = None) -> RasFacts:
    """Who hangs the job, from outputs of ``ncclras`` or ``rcclras`` by name, oldest first.

    ``ranks`` joins processes to the job's ranks, by (host or address, pid). Several polls are
    compared: who has launched more since is not stuck. Never raises for what a file holds: what
    is unreadable is in ``problems``, and ``polls`` is 0 where nothing could be read.
    """
    polls: list[Poll] = []
    problems: list[str] = []
    for name, data in files.items():
        try:
            polls += read(data, name)
        except InputError as error:
            problems.append(f"{name}: {error}")
    facts = reason(polls, problems=problems, ranks=ranks)
    said = [line for name, data in files.items() for line in watchdogs(name, data)]
    return msgspec.structs.replace(facts, evidence=(*facts.evidence, *said))


def watchdogs(name: str, data: bytes) -> list[str]:
    """What PyTorch's watchdog wrote into the same file; it knows which collective timed out."""
    if b"atchdog" not in data:
        return []
    lines = data.decode("utf-8", "replace").split("\n")
    works = [read_work(line[:MOST_CHARACTERS], None) for line in lines if "atchdog" in line]
    known = [work for work in works if work is not None and work.seq is not None]
    if not known:
        return []
    first = min(known, key=lambda work: work.seq or 0)
    ranks = sorted({work.rank for work in known})
    who = ", ".join(map(str, ranks[:8])) + (" and more" if len(ranks) > 8 else "")
    return [
        f"{name} also has lines of PyTorch's watchdog: ranks {who} timed out, first in "
        f"{first.operation or 'a collective'} number {first.seq}; who times out waits, and "
        "`ray-sentinel triage` reads who did not come"
    ]


def reason(
    polls: Sequence[Poll], *, problems: Sequence[str] = (), ranks: Known | None = None
) -> RasFacts:
    """The explanation from polls that have already been read."""
    told = [*problems, *(line for poll in polls for line in poll.problems)]
    if not polls:
        return RasFacts(
            kind="cannot-tell", evidence=("no poll could be read",), problems=tuple(told)
        )
    ordered = in_order(polls)
    found = looks(ordered)
    names = Names(ordered, ranks)
    result = RasContext(ordered, found, names)
    for judge in EVIDENCE:
        judge(result)
    evidence = [*result.evidence]
    if names.note and (result.culprits or result.waits):
        evidence.append(names.note)
    last = ordered[-1]
    cut = any("is cut" in line for line in told)
    return RasFacts(
        kind=result.kind,
        culprits=tuple(result.culprits),
        waits=tuple(result.waits),
        confidence=round(result.confidence * (0.8 if cut else 1.0), 2),
        evidence=tuple(evidence),
        problems=tuple(told),
        version=next((poll.version for poll in reversed(ordered) if poll.version), ""),
        library=next((poll.library for poll in reversed(ordered) if poll.library), ""),
        polls=len(ordered),
        communicators=max(len(found), sum(row.communicators for row in last.rows)),
    )

"""From the bytes of polls to an explanation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ray_sentinel.errors import InputError
from ray_sentinel.evidence.nccl_ras.behind import judge_counts
from ray_sentinel.evidence.nccl_ras.failed import judge_errors
from ray_sentinel.evidence.nccl_ras.gone import judge_gone
from ray_sentinel.evidence.nccl_ras.load import in_order, read
from ray_sentinel.evidence.nccl_ras.memberships import judge_memberships
from ray_sentinel.evidence.nccl_ras.meshes import looks
from ray_sentinel.evidence.nccl_ras.movement import judge_movement, judge_table
from ray_sentinel.evidence.nccl_ras.poll import Poll
from ray_sentinel.evidence.nccl_ras.scene import Scene
from ray_sentinel.evidence.nccl_ras.world import Known, Names
from ray_sentinel.model.ras import RasFacts

EVIDENCE = (
    judge_gone,
    judge_errors,
    judge_counts,
    judge_memberships,
    judge_table,
    judge_movement,
)
"""The hardest first: the first that concludes decides; the others add what they see."""


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
    return reason(polls, problems=problems, ranks=ranks)


def reason(
    polls: Sequence[Poll], *, problems: Sequence[str] = (), ranks: Known | None = None
) -> RasFacts:
    """The same, from polls that were already read."""
    told = [*problems, *(line for poll in polls for line in poll.problems)]
    if not polls:
        return RasFacts(
            kind="cannot-tell", evidence=("no poll could be read",), problems=tuple(told)
        )
    ordered = in_order(polls)
    found = looks(ordered)
    names = Names(ordered, ranks)
    result = Scene(ordered, found, names)
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

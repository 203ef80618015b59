"""The findings of rules that prove something of single ranks by what their processes show."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.ranks import RankView
from ray_sentinel.model.incident import EvidenceItem, FaultKind, Finding


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """What is proven, in the words of one rule."""

    rule: str
    kind: FaultKind
    what: str
    """Of the ranks, for the summary: "stopped (state T)"."""
    source: str = "process"
    weight: float = 6.0
    settled: bool = True


def of_ranks(proof: Proof, job: JobView, told: Sequence[tuple[RankView, str]]) -> Finding:
    """One hard finding about some ranks of a job; ``told`` has a sentence for each."""
    names = ", ".join(str(rank.rank.id.rank) for rank, _ in told)
    return Finding(
        rule=proof.rule,
        job=job.job,
        attempt=job.attempt,
        kind=proof.kind,
        severity="critical",
        summary=f"{job.job}: rank {names} {proof.what}",
        suspects=tuple(rank.rank.id for rank, _ in told),
        evidence=tuple(
            EvidenceItem(
                source=proof.source,
                text=f"rank {rank.rank.id.rank}: {text}",
                rank=rank.rank.id.rank,
                weight=proof.weight,
            )
            for rank, text in told
        ),
        hard=True,
        settled=proof.settled,
    )

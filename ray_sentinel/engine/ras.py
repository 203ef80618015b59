"""What NCCL's RAS says of a case, as evidence for and against its ranks.

RAS is one witness among several. A count that is behind says that the rank has not made the call
its peers are in; that it lists no mismatch says nothing, and counts for nobody.
"""

from __future__ import annotations

from collections.abc import Mapping

from ray_sentinel.engine.case import Case
from ray_sentinel.engine.evidence_scores import EvidenceScores
from ray_sentinel.engine.ranks import RankView

SOURCE = "nccl-ras"
WEIGHT = 6.0
"""Times the confidence of what RAS shows. A lag that lasts over two polls outweighs a stack that
looks like waiting; one that was seen once does not."""
WAITS = -2.0
"""Score of a rank that waits for others there."""


def weigh_ras(case: Case, ledger: EvidenceScores, by_rank: Mapping[int, RankView]) -> None:
    """Add the lines of RAS to the ledger."""
    facts = case.ras
    if facts is None:
        return
    blamed = {culprit.rank for culprit in facts.culprits}
    for culprit in facts.culprits:
        view = by_rank.get(culprit.rank) if culprit.rank is not None else None
        if view is not None:
            text = f"rank {culprit.rank} {culprit.reason}"
            ledger.add(view.rank.process, SOURCE, text, WEIGHT * facts.confidence, culprit.rank)
    waiting = {rank: wait for wait in facts.waits for rank in wait.ranks if rank not in blamed}
    if facts.culprits:
        for rank, wait in waiting.items():
            view = by_rank.get(rank)
            if view is not None:
                text = f"rank {rank} has launched what others have not: {wait.text}"
                ledger.add(view.rank.process, SOURCE, text, WAITS, rank)
    elif facts.evidence:
        ledger.add(None, SOURCE, f"NCCL RAS: {'; '.join(facts.evidence[:2])}", 0.0, None)


def ras_mismatches(case: Case) -> set[int]:
    """World ranks that RAS names for having called other collectives than their peers."""
    culprits = case.ras.culprits if case.ras is not None else ()
    return {c.rank for c in culprits if c.rank is not None and c.kind == "collective-mismatch"}

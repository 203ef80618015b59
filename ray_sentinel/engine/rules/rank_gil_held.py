"""rank.gil-held: a rank's interpreter cannot run, because something in C keeps the GIL."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.rule import Rule, Thresholds
from ray_sentinel.model.incident import EvidenceItem, Finding


class RankGilHeldThresholds(Thresholds, frozen=True, kw_only=True):
    """``silence_seconds``: least silence of the job; a moment's hold is everyday."""

    silence_seconds: float = 2.5


class RankGilHeld(Rule):
    """Hard evidence where the companion thread's stamp is old and that thread waits for the GIL."""

    name = "rank.gil-held"
    Thresholds = RankGilHeldThresholds

    def evaluate(self, view: ClusterView, now: float) -> Iterator[Finding]:
        for job in view.jobs.values():
            holders = [rank for rank in job.live if rank.held("gil-held", now)]
            silence = job.silence(now)
            if not holders or len(holders) > len(job.live) // 2 or job.protected_phase(now):
                continue
            if silence < job.brisk(self.thresholds.silence_seconds):
                continue
            names = ", ".join(str(rank.rank.id.rank) for rank in holders)
            yield Finding(
                rule=self.name,
                job=job.job,
                attempt=job.attempt,
                kind="gil-held",
                severity="critical",
                summary=f"{job.job}: rank {names} holds its GIL in C, no Python code can run there",
                suspects=tuple(rank.rank.id for rank in holders),
                evidence=tuple(
                    EvidenceItem(
                        source="process",
                        text=f"rank {rank.rank.id.rank}: the companion thread waits for the GIL; "
                        f"its main thread is {_main(rank.spinning)}; the job is silent for "
                        f"{silence:.1f} s",
                        rank=rank.rank.id.rank,
                        weight=6.0,
                    )
                    for rank in holders
                ),
                hard=True,
                settled=True,
            )


def _main(spinning: bool) -> str:
    return "burning CPU" if spinning else "asleep in a call"

"""rank.gil-held: a rank's interpreter cannot run, because C code keeps the GIL."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.rule import Proof, Rule, of_ranks, thresholds
from ray_sentinel.evidence.minority import half
from ray_sentinel.model.incident import Finding

PROOF = Proof(
    rule="rank.gil-held",
    kind="gil-held",
    what="holds its GIL in C, no Python code can run there",
)


class RankGilHeld(Rule):
    """Hard evidence if the companion thread's stamp is old and that thread waits for the GIL.

    Thresholds: ``silence_seconds``: least silence of the job; a moment's hold is everyday.
    """

    name = PROOF.rule
    Thresholds = thresholds(silence_seconds=2.5)

    def evaluate(self, view: ClusterView, now: float) -> Iterator[Finding]:
        for job in view.jobs.values():
            holders = [rank for rank in job.held if rank.held("gil-held", now)]
            if not holders or len(holders) > half(len(job.live)) or job.protected_phase(now):
                continue
            silence = job.silence(now)
            if silence < job.short_timeout(self.thresholds.silence_seconds):
                continue
            told = [
                (
                    rank,
                    "the companion thread waits for the GIL; the main thread is "
                    f"{_main(rank.spinning)}; the job is silent for {silence:.1f} s",
                )
                for rank in holders
            ]
            yield of_ranks(PROOF, job, told)


def _main(spinning: bool) -> str:
    return "burning CPU" if spinning else "asleep in a call"

"""What the demo prints at its end."""

from __future__ import annotations

import io

from rich.console import Console

from ray_sentinel.demo import show
from ray_sentinel.demo.plan import draw
from ray_sentinel.demo.trial import conclude
from ray_sentinel.model.incident import Culprit, EvidenceItem, Verdict
from tests.support.incidents import an_incident

BEGAN = 1_000.0


def printed(verdict: Verdict) -> str:
    incident = an_incident(
        job="job", kind="host-stuck", suspected_at=BEGAN, confirmed_at=BEGAN + 5, verdict=verdict
    )
    console = Console(file=io.StringIO(), width=120)
    show.verdict(console, conclude(draw("sleep", rank=3, seed=1), [incident], BEGAN))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_why_somebody_is_named_and_where_the_others_wait() -> None:
    against = EvidenceItem(source="stacks", text="rank 3 sleeps", rank=3, weight=3.0)
    speaks_for = [
        EvidenceItem(source="stacks", text=f"rank {n} waits: in all_reduce", rank=n, weight=-2.0)
        for n in (4, 0)
    ]
    verdict = Verdict(
        kind="host-stuck",
        summary="rank 3 on h stands still",
        culprits=(Culprit(rank=3, host="h", pid=3, reason=""),),
        confidence=0.9,
        evidence=(against, *speaks_for),
        waiting=("ranks 0, 4: in all_reduce",),
    )
    text = printed(verdict)
    assert "rank 3 on h stands still" in text
    assert "named 5.0 s after it began" in text
    assert text.index("rank 3 sleeps") < text.index("waiting: ranks 0, 4: in all_reduce")
    assert "rank 4 waits" not in text, "one line for all who wait in one place"
    assert "the verdict is right" in text

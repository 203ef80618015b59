"""What the page's own job tells of one rank: its series, its output, and its process groups."""

from __future__ import annotations

import math

from ray_sentinel.model.incident import RankLog, RankOutput
from ray_sentinel.model.last_hour import RankAsked, RankPlot, RankSeries, SeriesUnit
from ray_sentinel.model.process_groups import GroupKind, GroupsReport, JobGroups
from tests.support.page_data import NOW

SECONDS = 1800.0
STOPPED = SECONDS - 14.2
"""When rank 3 was stopped, and the others began to wait for it."""


def series(asked: RankAsked, hostile: str = "") -> RankSeries | None:
    """Half an hour of steps with a checkpoint, until they ended."""
    if asked.rank >= 8:
        return None
    times = [10.0 * place + 5.0 for place in range(int(STOPPED / 10))]
    waits = asked.rank != 3

    def plot(
        name: str, unit: SeriesUnit, busy: float, resting: float, spread: float, *, now: float,
        whole: float | None = None,
    ) -> RankPlot:  # fmt: skip
        points = [
            (at, resting if 1400 <= at < 1445 else busy + spread * math.sin(at * (1 + asked.rank)))
            for at in times
        ]
        return RankPlot(
            name=name, unit=unit, points=(*points, (STOPPED + 4, now), (STOPPED + 14, now)),
            whole=whole,
        )  # fmt: skip

    steps = tuple((at, 0.83 + 0.05 * math.sin(at)) for at in times if not 1400 <= at < 1445)
    return RankSeries(
        begin=NOW - SECONDS,
        end=NOW,
        plots=(
            RankPlot(name=f"time per step{hostile}", unit="seconds", points=steps),
            RankPlot(
                name="step", unit="steps", points=tuple((at, 4.0 + at / 1.5) for at, _ in steps)
            ),
            plot("CPUs of its node", "ratio", 0.42, 0.11, 0.03, now=0.05),
            plot(f"utilisation of GPU {asked.rank}", "ratio", 0.97, 0.0, 0.02, now=float(waits)),
            plot(
                f"power of GPU {asked.rank}", "watts", 655.0, 120.0, 22.0,
                now=240.0 if waits else 92.0,
            ),
            plot(f"memory of GPU {asked.rank}", "bytes", 61e9, 61e9, 2e8, now=61e9, whole=85e9),
        ),
        gpus=(str(asked.rank),),
        assumed=True,
    )  # fmt: skip


def output(asked: RankAsked, hostile: str = "") -> RankOutput | None:
    """Its last lines."""
    if asked.rank >= 8:
        return None
    lines = "".join(
        f"step {number} loss {2.3 - number / 1e4:.2f}{hostile}\n" for number in range(1150, 1204)
    )
    log = RankLog(
        rank=asked.rank, host="node-1", pid=4000 + asked.rank, sources=("stdout: /logs/rank.txt",)
    )
    return RankOutput(log=log, data=f"==> stdout: /logs/rank.txt <==\n{lines}".encode())


def groups(ranks: int = 8, hostile: str = "", job: str = "llama", attempt: int = 1) -> GroupsReport:
    """Tensor parallelism of four ranks that follow each other, data parallelism across these."""
    tensor = tuple(tuple(range(first, first + 4)) for first in range(0, ranks, 4))
    data = tuple(tuple(range(first, ranks, 4)) for first in range(4))
    kinds = (GroupKind(name=f"TENSOR{hostile}", groups=tensor), GroupKind(name="DATA", groups=data))
    told = JobGroups(job=job, attempt=attempt, at=NOW - 300.0, ranks=ranks, kinds=kinds)
    return GroupsReport(jobs=(told,))

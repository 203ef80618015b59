"""What ranks pass to ``step()``: the lowest rank that reports a scalar speaks for its job."""

from __future__ import annotations

from ray_sentinel.config import HangConfig
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.phases import PhaseBook
from ray_sentinel.engine.scalars import Scalars
from ray_sentinel.model.identity import ProcessId, Rank, RankId
from ray_sentinel.model.progress import ProcessState, Progress, RankSnapshot

KEY = ("j", 0)


def a_job() -> JobView:
    hang = HangConfig()
    job = JobView(number=1, job="j", attempt=0, first_seen=0.0, last_moved=0.0)
    return job.bind(hang, PhaseBook().bind(hang.phase_budgets))


def report(job: JobView, number: int, step: int, **scalars: float) -> None:
    rank = Rank(id=RankId("j", 0, number), process=ProcessId("h", 1000 + number, 1), node="n")
    progress = Progress(step=step, steps_recorded=step, scalars=scalars)
    seen = RankSnapshot(rank=rank, process=ProcessState(state="S"), progress=progress)
    job.apply(seen, "n", float(step), float(step))


def told(known: Scalars) -> dict[tuple[int, str], list[float]]:
    return {(rank, name): list(track.values) for (_, rank, name), track in known.tracks.items()}


def test_each_scalar_is_kept_of_the_lowest_rank_that_reports_it() -> None:
    job, known = a_job(), Scalars()
    for step in (1, 2):
        report(job, 7, step, loss=70.0 + step, lr=7.0)
        report(job, 3, step, loss=30.0 + step)
        report(job, 5, step, loss=50.0 + step, lr=5.0)
        known.update([job], float(step))
    assert told(known) == {(3, "loss"): [31.0, 32.0], (5, "lr"): [5.0, 5.0]}


def test_a_lower_rank_that_comes_later_speaks_from_then_on() -> None:
    job, known = a_job(), Scalars()
    report(job, 4, 1, loss=41.0)
    known.update([job], 1.0)
    report(job, 4, 2, loss=42.0)
    report(job, 0, 2, loss=2.0)
    known.update([job], 2.0)
    report(job, 4, 3, loss=43.0)
    known.update([job], 3.0)
    assert told(known) == {(0, "loss"): [2.0]}

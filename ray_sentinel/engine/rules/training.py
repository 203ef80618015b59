"""Rules on a training's course: its steps, its saves, the scalars that ranks give to ``step()``."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from itertools import pairwise

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.rule import thresholds
from ray_sentinel.engine.scalars import LEAST, Track
from ray_sentinel.engine.telemetry.alert_rules import JobAlertRule
from ray_sentinel.model.alert import Alert


class TrainThroughput(JobAlertRule):
    """Steps take longer than they used to, outside of saves and evaluations.

    Compares the median of the last steps with the best median that the job has sustained.

    Thresholds: ``ratio`` of the best median that was learned, in ``looks`` in a row, five seconds
    apart.
    """

    name = "train.throughput"
    Thresholds = thresholds(ratio=1.1, looks=12)

    def find_alerts(self, view: ClusterView, now: float) -> Iterator[Alert]:
        for job in view.jobs.values():
            track = view.scalars.steps.get(job.key)
            if track is None or job.protected_phase(now) or track.best is None:
                continue
            recent = track.values[-self.thresholds.looks :]
            limit = self.thresholds.ratio * track.best
            if len(recent) == self.thresholds.looks and min(recent) > limit:
                slower = 100.0 * (recent[-1] / track.best - 1.0)
                yield self.alert(
                    kind="slow",
                    job=job.job,
                    text=f"steps take {recent[-1]:.2f} s, {slower:.0f} % more than at their best",
                )


class TrainCheckpointOverdue(JobAlertRule):
    """The job has not saved for far longer than it used to.

    Every step since the last one is lost if the job fails now.

    Thresholds: ``factor`` times the longest of the last intervals between declared checkpoints.
    """

    name = "train.checkpoint_overdue"
    Thresholds = thresholds(factor=2.0)

    def find_alerts(self, view: ClusterView, now: float) -> Iterator[Alert]:
        for job in view.jobs.values():
            saves = view.scalars.saves.get(job.key)
            if saves is None or len(saves) < 3 or not job.at_work(now):
                continue
            gaps = [later - earlier for earlier, later in pairwise(saves)]
            if now - saves[-1] > self.thresholds.factor * max(gaps):
                yield self.alert(
                    job=job.job,
                    text=f"the last checkpoint was {now - saves[-1]:.0f} s ago; so far they were "
                    f"at most {max(gaps):.0f} s apart",
                )


class TrainLoss(JobAlertRule):
    """A scalar with "loss" in its name is no longer a number, or is far above its earlier values.

    ``factor`` times the median before, and ``above`` it at least, over ``looks`` in a row.
    """

    name = "train.loss"
    Thresholds = thresholds(factor=2.0, above=1.0, looks=6)

    def find_alerts(self, view: ClusterView, now: float) -> Iterator[Alert]:
        limits = self.thresholds
        for job, rank, name, track in _named(view, "loss", but=("lb_loss", "aux", "balance")):
            if now - track.at > 30.0 and job.silence(now) < 30.0:
                text = f"{name} of rank {rank} is no longer a number"
                yield self.alert(text, severity="critical", job=job.job)
                continue
            usual = _median_before(track, limits.looks)
            recent = track.values[-limits.looks :]
            if usual is None or len(recent) < limits.looks:
                continue
            if min(recent) > max(limits.factor * usual, usual + limits.above):
                text = f"{name} of rank {rank} is {recent[-1]:.4g}, it used to be {usual:.4g}"
                yield self.alert(text, job=job.job)


class TrainGradient(JobAlertRule):
    """A scalar with "grad" in its name is ``factor`` times the median of its earlier values, which
    mostly precedes a diverging loss."""

    name = "train.gradient"
    Thresholds = thresholds(factor=10.0)

    def find_alerts(self, view: ClusterView, now: float) -> Iterator[Alert]:
        for job, rank, name, track in _named(view, "grad"):
            usual = _median_before(track, 1)
            if usual and track.values[-1] > self.thresholds.factor * usual:
                text = f"{name} of rank {rank} is {track.values[-1]:.4g}, it used to be {usual:.4g}"
                yield self.alert(text, job=job.job)


class TrainMoeBalance(JobAlertRule):
    """The load of a mixture's experts drifts apart: a scalar with "moe" and "lb_loss" or
    "balance" in its name is ``factor`` times the median before, over ``looks`` in a row."""

    name = "train.moe_balance"
    Thresholds = thresholds(factor=2.0, looks=6)

    def find_alerts(self, view: ClusterView, now: float) -> Iterator[Alert]:
        limits = self.thresholds
        for job, rank, name, track in _named(view, "moe"):
            if "lb_loss" not in name.lower() and "balance" not in name.lower():
                continue
            usual = _median_before(track, limits.looks)
            recent = track.values[-limits.looks :]
            if usual and len(recent) == limits.looks and min(recent) > limits.factor * usual:
                text = f"{name} of rank {rank} is {recent[-1]:.4g}, it used to be {usual:.4g}"
                yield self.alert(text, job=job.job)


def _named(
    view: ClusterView, word: str, but: tuple[str, ...] = ()
) -> Iterator[tuple[JobView, int, str, Track]]:
    """The scalars with a word in their names, each of the lowest rank that reports it."""
    for (job, rank, name), track in sorted(view.scalars.tracks.items(), key=lambda i: i[0]):
        lower = name.lower()
        if word not in lower or any(other in lower for other in but):
            continue
        if job in view.jobs and track.values:
            yield view.jobs[job], rank, name, track


def _median_before(track: Track, last: int) -> float | None:
    """The median of the values before the last ones; None if there are too few."""
    before = track.values[:-last]
    return statistics.median(before) if len(before) >= LEAST else None

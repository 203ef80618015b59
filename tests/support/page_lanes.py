"""The lanes of the jobs of ``page_data``, as the engine records them."""

from __future__ import annotations

from ray_sentinel.engine.last_hour.lanes import HOUR, Lanes, Stretch
from ray_sentinel.model.last_hour import JobLanes, LanesReport
from tests.support.page_data import NOW

BEGIN = NOW - HOUR


def ranks(number: int) -> Lanes:
    """Half an hour with two checkpoints and a pause; in the end rank 3 is stopped and all wait."""
    lanes = Lanes()
    for rank in range(number):
        marks = [
            ("startup", NOW - 1900.0 + rank % 5),
            ("step", NOW - 1790.0 + rank % 3),
            ("checkpoint", NOW - 1300.0 + rank % 4),
            ("step", NOW - 1255.0),
            ("gap", NOW - 700.0),
            ("step", NOW - 640.0),
            ("checkpoint", NOW - 400.0 + rank % 4),
            ("step", NOW - 355.0),
            ("stopped" if rank == 3 else "wait", NOW - 14.2),
        ]
        ends = [at for _, at in marks[1:]] + [NOW]
        told = [Stretch(k, b, e) for (k, b), e in zip(marks, ends, strict=True)]
        if rank == 5:  # it is slow
            told += (
                Stretch("wait", NOW - 340.0 + 15 * turn, NOW - 337.0 + 15 * turn)
                for turn in range(20)
            )
        lanes.lanes[f"rank {rank}"] = told
    return lanes


def roles(hostile: str = "") -> Lanes:
    """Four minutes of rollouts, rewards and training, until a rollout stood still."""
    lanes = Lanes()
    for turn in range(16):
        at = NOW - 340.0 + 15 * turn
        for actor in range(4):
            lanes.call(f"Rollout.generate{hostile}", at + actor / 5, at + 5.0 + actor / 3)
        lanes.call("Reward.score", at + 5.5, at + 8.0)
        lanes.call("Trainer.update", at + 8.1, at + 12.5)
        lanes.call("Trainer.sync_weights", at + 12.6, at + 14.6)
    lanes.call(f"Rollout.generate{hostile}", NOW - 93.0, NOW)
    return lanes


def report(hostile: str = "", *, number: int = 8) -> LanesReport:
    """Of both jobs."""
    kinds, drawn = ranks(number).drawn(BEGIN, {})
    trained = JobLanes(job=f"llama{hostile}", attempt=1, of="ranks", kinds=kinds, lanes=drawn)
    kinds, drawn = roles(hostile).drawn(BEGIN, {})
    actors = JobLanes(job="train_rl-1", attempt=0, of="roles", kinds=kinds, lanes=drawn)
    return LanesReport(begin=BEGIN, end=NOW, jobs=(trained, actors))

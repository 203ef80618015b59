"""The pulse of the jobs of ``page_data``, as the engine records it."""

from __future__ import annotations

import math

from ray_sentinel.engine.last_hour.pulse import PLACES, WIDTH, Pulse
from ray_sentinel.model.last_hour import JobPulse, PulseMark, PulseReport
from tests.support.page_data import NOW

FIRST = int(NOW // WIDTH) - PLACES + 1


def steps() -> Pulse:
    """An hour of steps of some 0.83 s, with two checkpoints and one slow step, until a rank was
    stopped."""
    pulse = Pulse()
    at, number = NOW - 3500.0, 0
    while at < NOW - 14.2:
        if number in (1300, 2600):
            for rank in range(8):
                pulse.note_phase("checkpoint", at + rank / 8, at + 41.0)
            at += 41.0
        seconds = 0.83 + 0.05 * math.sin(number / 90) + 0.02 * (number % 7)
        seconds += 9.0 if number == 2000 else 0.0
        at, number = at + seconds, number + 1
        pulse.add("", seconds, at)
    return pulse


def calls(hostile: str = "") -> Pulse:
    """Four minutes of rollouts and training, until a rollout stood still."""
    pulse = Pulse()
    for turn in range(16):
        at = NOW - 340.0 + 15 * turn
        pulse.add(f"Rollout.generate{hostile}", 2.5 + 0.4 * math.sin(turn), at + 5)
        pulse.add("Trainer.update", 4.1 + 0.2 * math.cos(turn), at + 10)
    return pulse


def marks(hostile: str = "") -> tuple[PulseMark, ...]:
    """What kernels said of a GPU, of a link and of memory."""
    gone = f"mlx5_0: Link DOWN{hostile}"
    return (
        PulseMark(at=NOW - 2410.0, about="network", host=f"node-0{hostile}", text=gone, count=4),
        PulseMark(at=NOW - 1200.0, about="host", host="node-1", text="Out of memory: python"),
        PulseMark(at=NOW - 610.0, about="gpu", host="node-1", text="GPU 3 Xid 94: ECC error"),
    )


def report(hostile: str = "") -> PulseReport:
    """Of both jobs."""
    trained = steps()
    ranks = JobPulse(
        job=f"llama{hostile}",
        attempt=1,
        counts="steps",
        lanes=trained.shown_lanes(FIRST),
        phases=trained.shown_phases(FIRST * WIDTH, {}, ()),
        marks=marks(hostile),
    )
    actors = JobPulse(
        job="train_rl-1", attempt=0, counts="calls", lanes=calls(hostile).shown_lanes(FIRST)
    )
    return PulseReport(begin=FIRST * WIDTH, width=WIDTH, places=PLACES, jobs=(ranks, actors))

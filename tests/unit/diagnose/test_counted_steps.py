"""Jobs whose step time nobody records: it is counted from steps, which are read now and then."""

from __future__ import annotations

import numpy as np
import pytest

from ray_sentinel.diagnose.examine import examine
from ray_sentinel.model.diagnosis import Diagnosis
from ray_sentinel.store.event_files.memory import MemorySource

BEGIN, SECONDS = 1.7e9, 5400.0


def diagnosed(
    step: float, every: float, *, slower: float = 1.0, saves: int = 0, seed: int = 0
) -> Diagnosis:
    """A job with steps of ``step`` seconds, read ``every`` so many; ``slower`` in the second half;
    a save of 25 s after each ``saves`` steps."""
    rng, ends, clock = np.random.default_rng(seed), [], 60.0
    while clock < SECONDS:
        factor = slower if clock > SECONDS / 2 else 1.0
        clock += step * factor * (1 + rng.normal(0, 0.015))
        ends.append(clock)
        if saves and len(ends) % saves == 0:
            clock += 25.0 * (1 + rng.normal(0, 0.05))
    times = np.arange(rng.uniform(0, every), SECONDS, every)
    done = np.searchsorted(ends, times, side="right").astype(float)
    source = MemorySource()
    source.add("tb_step", {"host": "n0"}, BEGIN + times, np.where(done > 0, done, np.nan))
    for gpu in "0123":
        power = 600 + rng.normal(0, 8, times.size)
        source.add("hw_gpu_power_watts", {"host": "n0", "gpu": gpu}, BEGIN + times, power)
    return examine(source).diagnosis


@pytest.mark.parametrize("every", [5.0, 10.0, 15.0, 30.0])
@pytest.mark.parametrize("step", [0.8, 2.3, 4.0, 6.7, 26.0])
def test_that_steps_do_not_fit_the_readings_slows_none(step: float, every: float) -> None:
    for seed in range(2):
        answer = diagnosed(step, every, saves=60 * seed, seed=seed)
        assert answer.outcome == "healthy", answer.root_cause


@pytest.mark.parametrize("every", [5.0, 10.0, 30.0])
@pytest.mark.parametrize("step", [0.8, 4.0, 6.7, 26.0])
def test_steps_that_grow_slow_are_found_however_seldom_they_are_read(
    step: float, every: float
) -> None:
    answer = diagnosed(step, every, slower=1.3)
    assert answer.cause == "slow-unexplained"
    assert answer.onset is not None
    assert abs(answer.onset - (BEGIN + SECONDS / 2)) < 40 * max(min(step, every), 10.0)

"""A loss that takes long to come back, and a job that stands still, its utilisation unknown."""

from __future__ import annotations

import numpy as np
import pytest

from ray_sentinel.diagnose.examine import examine
from ray_sentinel.diagnose.logs import LogFacts
from ray_sentinel.diagnose.series import Floats
from ray_sentinel.model.diagnosis import Diagnosis
from ray_sentinel.store.event_files.memory import MemorySource

BEGIN, STEPS = 1.7e9, 400
TIMES = BEGIN + 10.0 * np.arange(STEPS)


def trained(bump: Floats, seed: int = 0) -> Diagnosis:
    """A loss that decays, with ``bump`` on top of it."""
    rng = np.random.default_rng(seed)
    steps = np.arange(STEPS)
    loss = (11 * np.exp(-steps / 140) + 2.2) * (1 + 0.006 * rng.standard_normal(STEPS))
    source = MemorySource()
    source.add("tb_step", {"host": "n0"}, TIMES, steps)
    source.add("tb_learning_loss", {"host": "n0"}, TIMES, loss + bump)
    return examine(source).diagnosis


def bump(first: int, last: int, size: float) -> Floats:
    steps = np.arange(STEPS)
    return np.where((steps >= first) & (steps < last), size, 0.0)


@pytest.mark.parametrize("seed", range(3))
def test_a_loss_that_is_long_in_coming_back_is_a_setback(seed: int) -> None:
    found = trained(bump(180, 260, 2.5), seed)
    assert (found.outcome, found.cause, found.culprits) == ("found", "loss-setback", ())
    assert "and came back only after" in found.root_cause
    assert found.root_cause.startswith("Training was set back: the loss rose")


@pytest.mark.parametrize(("first", "last", "size"), [(180, 186, 2.5), (180, 260, 0.6)])
def test_short_or_small_ones_are_passing_events(first: int, last: int, size: float) -> None:
    assert trained(bump(first, last, size)).outcome == "healthy"


def test_one_that_does_not_come_back_has_diverged() -> None:
    assert trained(bump(300, STEPS, 4.0)).cause == "loss-diverged"


def stopped(logs: LogFacts) -> Diagnosis:
    """Steps end half way, and the GPUs come down; nobody recorded their utilisation."""
    source = MemorySource()
    rng = np.random.default_rng(1)
    source.add("tb_step", {"host": "n0"}, TIMES, np.minimum(np.arange(STEPS), 200))
    for host in ("n0", "n1", "n2"):
        for gpu in ("0", "1"):
            labels = {"host": host, "gpu": gpu}
            power = np.where(np.arange(STEPS) <= 200, 650, 195) + rng.normal(0, 3, STEPS)
            source.add("hw_gpu_power_watts", labels, TIMES, power)
            source.add("hw_gpu_temperature_celsius", labels, TIMES, rng.normal(60, 1, STEPS))
    return examine(source, logs=logs).diagnosis


def test_that_its_gpus_are_well_does_not_make_a_standing_job_healthy() -> None:
    found = stopped(LogFacts())
    assert (found.outcome, found.cause, found.culprits) == ("unknown", "stopped", ())


@pytest.mark.parametrize(
    "logs",
    [LogFacts(summary=True), LogFacts(ended="completed"), LogFacts(config={"steps": "201"})],
)
def test_a_job_that_is_known_to_be_done_is_healthy(logs: LogFacts) -> None:
    assert stopped(logs).outcome == "healthy"

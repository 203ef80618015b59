"""What training curves do without anything being wrong, and what still counts."""

from __future__ import annotations

import numpy as np
import pytest

from ray_sentinel.diagnose.examine import examine
from ray_sentinel.diagnose.series import Floats
from ray_sentinel.model.diagnosis import Diagnosis, DiagnosisReport
from ray_sentinel.store.event_files.memory import MemorySource

BEGIN, STEPS = 1.7e9, 1000


def falling(steps: Floats) -> Floats:
    return np.asarray(11 * np.exp(-steps / 140) + 2.2)


def trained(*series: Floats, **others: Floats) -> Diagnosis:
    return told(*series, **others).diagnosis


def told(
    steps: Floats,
    loss: Floats | None = None,
    grad: Floats | None = None,
    rate: Floats | None = None,
) -> DiagnosisReport:
    """A step every ten seconds; ``steps`` in the order in which they were done."""
    rng = np.random.default_rng(0)
    times = BEGIN + 10.0 * np.arange(steps.size)
    loss = falling(steps) if loss is None else loss
    grad = 0.4 + 2 * np.exp(-steps / 60) if grad is None else grad
    source = MemorySource()
    source.add("tb_step", {"host": "n0"}, times, steps)
    noise = 1 + 0.004 * rng.standard_normal((2, steps.size))
    source.add("tb_learning_loss", {"host": "n0"}, times, loss * noise[0])
    source.add("tb_learning_grad_norm", {"host": "n0"}, times, grad * noise[1])
    if rate is not None:
        source.add("tb_learning_current_learning_rate", {"host": "n0"}, times, rate)
    return examine(source)


@pytest.mark.parametrize(("first", "second"), [((0, 200), (100, 140)), ((0, 300), (200, 500))])
def test_steps_that_a_restart_does_again_are_no_setback(
    first: tuple[int, int], second: tuple[int, int]
) -> None:
    steps = np.concatenate([np.arange(*first), np.arange(*second)]).astype(float)
    rate = 3e-4 * np.exp(-steps / 50)
    assert trained(steps, rate=rate).outcome == "healthy"


def test_a_loss_that_breaks_after_a_restart_still_counts() -> None:
    steps = np.concatenate([np.arange(300), np.arange(200, 500)]).astype(float)
    loss = falling(steps) + np.where(np.arange(600) > 500, 3.0, 0.0)
    assert trained(steps, loss).cause == "loss-diverged"


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_overflows_for_a_moment_breaks_nothing(value: float) -> None:
    steps = np.arange(STEPS, dtype=float)
    grad, loss = np.full(STEPS, 0.5), falling(steps)
    grad[[0, 4]] = value
    loss[400] = value
    found = told(steps, loss, grad)
    assert found.diagnosis.outcome == "healthy"
    said = next(one.root_cause for one in found.others if one.analysis == "training-stability")
    assert "the loss was NaN or infinite in 1 of 1000 samples, first at step 400" in said
    assert "the gradient norm was NaN or infinite in 2 of 1000 samples, first at step 0" in said


def test_a_loss_that_stays_not_finite_has_broken() -> None:
    steps = np.arange(STEPS, dtype=float)
    loss = falling(steps)
    loss[300], loss[900:] = np.nan, np.nan
    found = trained(steps, loss)
    assert found.cause == "loss-nan"
    assert found.root_cause.startswith(
        "Training broke: the loss is NaN or infinite from here on, at step 900"
    )


def test_a_loss_whose_last_value_is_not_finite_has_broken() -> None:
    steps = np.arange(STEPS, dtype=float)
    loss = falling(steps)
    loss[-1] = np.nan
    assert trained(steps, loss).cause == "loss-nan"


def slow(seed: int, memory: float, size: float = 0.05) -> Floats:
    """Noise in which each value remembers the one before it."""
    fresh = np.random.default_rng(seed).standard_normal(STEPS) * (1 - memory**2) ** 0.5
    out = np.zeros(STEPS)
    for place in range(1, STEPS):
        out[place] = memory * out[place - 1] + fresh[place]
    return size * out


@pytest.mark.parametrize(("memory", "wrong"), [(0.9, 0), (0.97, 1)])
def test_slow_noise_is_no_divergence(memory: float, wrong: int) -> None:
    """Where it wanders for longer than the running median is wide, not all can be told."""
    steps = np.arange(STEPS, dtype=float)
    causes = [trained(steps, falling(steps) * (1 + slow(seed, memory))).cause for seed in range(10)]
    assert causes.count("none") >= 10 - wrong


def test_domains_that_are_read_one_after_the_other_are_no_divergence() -> None:
    steps = np.arange(STEPS, dtype=float)
    causes = []
    for seed in range(10):
        levels = np.random.default_rng(seed).uniform(-0.08, 0.08, STEPS // 25)
        causes.append(trained(steps, falling(steps) * (1 + np.repeat(levels, 25))).cause)
    assert causes == ["none"] * 10


def cycles(rise: float, warm: int) -> tuple[Floats, Floats, Floats]:
    """Steps, loss and learning rate of a schedule that begins again every 250 steps."""
    steps = np.arange(STEPS, dtype=float)
    place = steps % 250
    rate = 3e-4 * 0.5 * (1 + np.cos(np.pi * place / 250))
    bump = rise * np.exp(-place / 60)
    if warm:
        rate *= np.minimum(place / warm, 1.0)
        bump *= np.minimum(place / warm, 1.0)
    return steps, falling(steps) * (1 + np.where(steps < 250, 0.0, bump)), rate


@pytest.mark.parametrize("warm", [0, 20])
def test_warm_restarts_of_the_schedule_are_expected(warm: int) -> None:
    steps, loss, rate = cycles(0.25, warm)
    assert trained(steps, loss, rate=rate).outcome == "healthy"


def test_a_loss_that_goes_on_rising_in_a_cycle_has_diverged() -> None:
    steps, loss, rate = cycles(0.25, 0)
    late = np.maximum(steps - 860, 0) * 0.05
    assert trained(steps, loss + late, rate=rate).cause == "loss-diverged"


def test_a_rate_beyond_what_the_schedule_reached_is_a_jump() -> None:
    steps = np.arange(STEPS, dtype=float)
    rate = np.where(steps < 600, 3e-4, 24e-4)
    loss = falling(steps) + np.maximum(steps - 605, 0) * 0.02
    assert trained(steps, loss, rate=rate).cause == "lr-jump"

"""Curves of two jobs are compared step by step, whatever time each took for them."""

from __future__ import annotations

import numpy as np
import pytest

from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.comparison import Side, compare
from ray_sentinel.diagnose.logs import LogFacts
from ray_sentinel.diagnose.series import Floats
from ray_sentinel.diagnose.view import View
from ray_sentinel.model.comparison import Comparison
from ray_sentinel.store.event_files.memory import MemorySource

STEPS = 400
PLACE = np.arange(STEPS, dtype=float)
LOSS = 11 * np.exp(-PLACE / 140) + 2.2


def job(title: str, seconds: Floats, loss: Floats, seed: int = 0) -> Side:
    noise = 1 + 0.003 * np.random.default_rng(seed).standard_normal(STEPS)
    times = 1.7e9 + np.cumsum(seconds)
    source = MemorySource()
    source.add("tb_step", {}, times, PLACE)
    source.add("tb_learning_loss", {}, times, loss * noise)
    span = source.span()
    assert span is not None
    return Side(title=title, case=JobCase(View(source, *span)), logs=LogFacts())


def loss_of(found: Comparison) -> tuple[bool, float]:
    delta = next(delta for delta in found.deltas if delta.title == "loss")
    assert delta.relative is not None
    return delta.significant, delta.relative


EVEN = np.full(STEPS, 10.0)
SLOW_AT_FIRST = np.where(PLACE < STEPS / 2, 30.0, 10.0)
FAST = np.full(STEPS, 3.0)


@pytest.mark.parametrize("seconds", [EVEN, SLOW_AT_FIRST, FAST])
@pytest.mark.parametrize("seed", range(1, 4))
def test_the_same_curve_at_another_pace_is_the_same(seconds: Floats, seed: int) -> None:
    found = compare(job("a", EVEN, LOSS), job("b", seconds, LOSS, seed))
    significant, relative = loss_of(found)
    assert not significant
    assert abs(relative) < 0.01


@pytest.mark.parametrize("seconds", [EVEN, SLOW_AT_FIRST])
def test_a_higher_curve_is_another(seconds: Floats) -> None:
    found = compare(job("a", EVEN, LOSS), job("b", seconds, 1.03 * LOSS, 1))
    significant, relative = loss_of(found)
    assert significant
    assert relative == pytest.approx(0.03, abs=0.01)


def test_a_curve_that_is_not_finite_is_said() -> None:
    broken = np.where(PLACE < 300, LOSS, np.nan)
    found = compare(job("a", EVEN, LOSS), job("b", EVEN, broken, 1))
    assert found.notes == ("b: the loss is not finite in 100 of 400 samples, first at step 300",)

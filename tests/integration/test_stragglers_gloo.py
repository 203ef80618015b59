"""Real jobs of eight gloo ranks: a straggler is named from 30 steps, and noise names nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_sentinel.evidence.stragglers import explain
from tests.support.slow_gloo_job import run, work

pytestmark = pytest.mark.integration

NOISE = 0.2


@pytest.mark.parametrize("factor", [1.3, 2.0])
def test_a_straggler_is_named_within_30_steps(tmp_path: Path, factor: float) -> None:
    facts = explain(run(tmp_path, slow=5, factor=factor, noise=NOISE, seed=1))
    assert facts.ranks == (5,), facts
    assert facts.cost * facts.seconds == pytest.approx(saved_without(5, factor), rel=0.25)


def saved_without(slow: int, factor: float) -> float:
    """Seconds by which the job would end sooner if the slow rank took no longer than the others."""
    works = [work(rank, slow=slow, factor=factor, noise=NOISE, seed=1) for rank in range(8)]
    steps = list(zip(*works, strict=True))
    return sum(max(step) - max(step[:slow] + step[slow + 1 :]) for step in steps)


def test_a_noisy_healthy_job_names_nobody(tmp_path: Path) -> None:
    facts = explain(run(tmp_path, noise=NOISE, seed=2))
    assert not facts.ranks, facts

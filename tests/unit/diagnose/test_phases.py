"""Work between two steps that is no training, and the end of a job, are no hang."""

from __future__ import annotations

import pytest

from ray_sentinel.diagnose.examine import examine
from ray_sentinel.diagnose.logs import LogFacts
from tests.support.plain_job import Phase, watched

START = Phase(300, steps=False, watts=100, spread=2, util=0)
TRAIN = Phase(3600)
EVALUATION = Phase(300, steps=False, watts=300, spread=40, util=88)
GENERATION = Phase(600, steps=False, watts=260, spread=60, util=88)
POLLING = Phase(900, steps=False, watts=150, spread=4, util=99)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "phases",
    [
        (START, TRAIN, EVALUATION, TRAIN, EVALUATION, TRAIN),
        (START, TRAIN, GENERATION, TRAIN),
        (START, TRAIN, EVALUATION),
    ],
)
def test_evaluations_and_generations_are_no_busy_wait(phases: tuple[Phase, ...], seed: int) -> None:
    found = examine(watched(phases, seed=seed)).diagnosis
    assert (found.outcome, found.culprits) == ("healthy", ())


@pytest.mark.parametrize("seed", range(2))
def test_polling_is_one(seed: int) -> None:
    found = examine(watched((START, TRAIN, POLLING), seed=seed)).diagnosis
    assert (found.outcome, found.cause) == ("found", "busy-wait")


def test_a_job_that_was_completed_does_not_hang() -> None:
    source = watched((START, TRAIN, POLLING))
    found = examine(source, logs=LogFacts(ended="completed", files=("job.log",))).diagnosis
    assert (found.outcome, found.cause) == ("healthy", "none")

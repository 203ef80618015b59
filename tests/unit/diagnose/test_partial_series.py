"""Pieces of a job: a few samples, families that are missing, values that are no numbers.

A diagnosis of them may know little, but it must come.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from ray_sentinel.diagnose.case import DiagnoseOptions
from ray_sentinel.diagnose.examine import examine
from ray_sentinel.errors import InputError
from ray_sentinel.store.event_files.memory import MemorySource
from tests.support.tsdb_scenarios.catalogue import scenarios

NAMES = [one.name for one in scenarios()]
WILD = (float("nan"), float("inf"), -float("inf"), -1.0, 0.0, 1e300)
SAMPLES = (1, 2, 3, 4, 5, 8, 13, 40)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_any_piece_of_a_job_gets_an_answer(name: str) -> None:
    dice = random.Random(name)
    world, _ = next(one for one in scenarios() if one.name == name).make(3)
    series = list(world.series())
    for samples in SAMPLES:
        start = dice.randrange(series[0][2].size)
        piece = MemorySource("a piece")
        without = {family for family, *_ in series if dice.random() < 0.3}
        for family, labels, times, values in series:
            if family in without or dice.random() < 0.05:
                continue
            part = np.array(values[start : start + samples], dtype=np.float64)
            if dice.random() < 0.05:
                part[:] = dice.choice(WILD)
            piece.add(family, labels, times[start : start + samples], part)
        if not piece.families():
            with pytest.raises(InputError, match="no series at all"):
                examine(piece)
            continue
        span = piece.span()
        assert span is not None
        window = (span[0] - 1.0, span[1]) if dice.random() < 0.5 else None
        answer = examine(piece, options=DiagnoseOptions(window=window)).diagnosis
        assert answer.root_cause
        assert 0.0 <= answer.confidence <= 1.0

"""Every fault on a real Ray cluster with a real gloo training: who is named, and who never is.

A few in everyday tests; all of the table, attached and not, with ``FAULTS=all`` (``make faults``),
and another draw with ``FAULTS_SEED``. How long it took is not judged here, for a busy machine would
fail: docs/faults.md has the times.
"""

from __future__ import annotations

import os

import pytest

from ray_sentinel.demo.catalogue import ALL
from ray_sentinel.demo.plan import TrialPlan, draw
from ray_sentinel.demo.suite import result_of
from tests.faults.conftest import Played

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.timeout(1200)]

FEW: tuple[tuple[str, str, bool], ...] = (
    ("sigkill", "pipeline", False),
    ("sigstop", "experts", True),
    ("gil", "ddp", False),
    ("fifo", "tensor", False),
    ("two-sleep", "data", True),
    ("skip", "tensor", True),
    ("leave-loop", "pipeline", False),
    ("finish", "ddp", True),
    ("exception", "ddp", False),
)
FEWEST = {"ddp": 3, "experts": 3, "pipeline": 6}
"""Ranks of a layout in everyday tests, else 4: each node has some, each group has two, a pipeline
has a stage in its middle, and of two culprits each has a victim. A rank costs four seconds of a
processor before its first step; the whole table draws 6 to 8."""
SEED = int(os.environ.get("FAULTS_SEED", "1"))


def plans() -> list[TrialPlan]:
    if os.environ.get("FAULTS") != "all":
        return [
            draw(
                fault,
                seed=SEED + n,
                layout=layout,
                attach="attach" if attached else "",
                world=FEWEST.get(layout, 4),
            )
            for n, (fault, layout, attached) in enumerate(FEW)
        ]
    modes = (("attach", 0), ("", 1000))
    return [
        draw(fault, seed=SEED + n + offset, attach=mode)  # type: ignore[arg-type]
        for mode, offset in modes
        for n, fault in enumerate(ALL)
    ]


def name(plan: TrialPlan) -> str:
    return f"{plan.fault}-{plan.layout}-{plan.attach or 'not-attached'}"


@pytest.mark.parametrize("plan", plans(), ids=name)
def test_the_verdict_is_right(plan: TrialPlan, played: Played) -> None:
    told = result_of(played(plan))
    assert told.broken == ""
    assert told.innocents == [], told
    assert told.false_alarms == 0
    assert told.wrong == "", told

"""Lines that give a step's number and little else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_sentinel.evidence.logs.lines.lines import parse_line
from ray_sentinel.evidence.logs.training.bare_steps import LastStep, parse_any_step, surest
from ray_sentinel.evidence.logs.training.steps import HINTS, ReportedStep


@pytest.mark.parametrize(
    ("line", "step", "total", "seconds"),
    [
        ("INFO step 599", 599, None, None),
        ("[rank0] step 7", 7, None, None),
        ("step: 7/100", 7, 100, None),
        ("step 7 took 1.2 s", 7, None, 1.2),
        ("step 7 done in 250ms", 7, None, 0.25),
        ("2026-11-20 10:00:00,123 - __main__ - INFO - Step 17/500", 17, 500, None),
        ("[2026-11-20 10:00:00] rank 3: step 17", 17, None, None),
        ("2026-11-20T10:00:00Z my.trainer | finished step 17.", 17, None, None),
        ("Epoch 1, batch 30/100", 30, 100, None),
        ('{"ts": 1.2, "level": "info", "step": 7}', 7, None, None),
        ("{'step': 7, 'rank': 0}", 7, None, None),
        ("(RayTrainWorker pid=3, ip=10.0.0.2) [rank 0] step 7", 7, None, None),
        ("step 12 world 8, acc=0.93", 12, None, None),
    ],
)
def test_a_number_alone(line: str, step: int, total: int | None, seconds: float | None) -> None:
    found = parse_any_step(parse_line(line).text)
    assert found is not None
    assert (found.step, found.total, found.seconds, found.bare) == (step, total, seconds, True)
    assert any(hint in line.encode() for hint in HINTS)


@pytest.mark.parametrize(
    "line",
    [
        "Step 3/10 : FROM ubuntu",
        "Step 1: install the driver",
        "checkpoint saved at step 100",
        "resuming from step 100",
        "failed at step 7",
        "Error: step 7",
        "eval step 7",
        "validation: batch 7",
        "Missing key step: 3",
        "Waiting, iteration 4",
        "footstep 7",
    ],
)
def test_what_is_no_training_step(line: str) -> None:
    assert parse_any_step(parse_line(line).text) is None


def test_bare_steps_count_where_nothing_tells_better() -> None:
    bare = [ReportedStep(step=number, bare=True) for number in (1, 2, 3)]
    measured = [ReportedStep(step=700, loss=1.0)]
    assert surest(bare, lambda step: step) == bare
    assert surest([*bare, *measured], lambda step: step) == measured
    assert surest(bare[:1], lambda step: step) == []
    assert surest(bare[::-1], lambda step: step) == []


@pytest.mark.parametrize(
    ("pieces", "step"),
    [
        ([["step 3", "step 4", "bye"]], 4),
        ([["step 3"], ["bye"], ["step 4"]], 4),
        ([["step 3"], ["step 4"], ["step 2"]], 2),  # it goes on from a checkpoint
        ([["step 70 loss 1.5", "step 4", "step 5"]], 70),
        ([["step 70 loss 1.5"], ["step 4"], ["step 5"]], 70),
        ([["step 4", "step 5"], ["step 1 loss 1.5"]], 1),
        ([["step 3", "step 3"], ["step 2"]], None),
        ([["step 3"]], None),
        ([["nothing", ""], []], None),
    ],
)
def test_the_last_step(pieces: list[list[str]], step: int | None) -> None:
    last = LastStep()
    for lines in pieces:
        last.feed(lines)
    assert (last.step.step if last.step else None) == step
    whole = [found for lines in pieces for line in lines if (found := parse_any_step(line))]
    counted = surest(whole, lambda found: found)
    assert (counted[-1].step if counted else None) == step


@given(st.text(max_size=400))
def test_any_text(text: str) -> None:
    parse_any_step(text)
    parse_any_step(f"step 7 {text}")

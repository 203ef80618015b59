# ruff: noqa: E501 - log lines are as long as they are
"""Step lines of frameworks."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_sentinel.evidence.logs.records import StepSeen
from ray_sentinel.evidence.logs.training.steps import HINTS, ReportedStep, parse_step
from ray_sentinel.evidence.logs.training.timeline import usual_seconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "completed step: 12, seconds: 3.216, TFLOP/s/device: 402.1, Tokens/s/device: 8000.2, "
            "total_weights: 10, loss: 7.213",
            {"step": 12, "seconds": 3.216, "loss": 7.213, "tokens_per_second": 8000.2},
        ),
        (
            "Training:  45%|####      | 450/1000 [10:00<12:00,  1.31s/it, loss=1.2]",
            {"step": 450, "total": 1000, "seconds": 1.31, "loss": 1.2},
        ),
        (" 45%|████▌     | 450/1000 [10:00<12:00,  2.00it/s]", {"step": 450, "seconds": 0.5}),
        (
            "Epoch 3:  45%|████ | 450/1000 [00:30<00:40, 10.0it/s, v_num=0, train_loss=0.123]",
            {"step": 450, "loss": 0.123},
        ),
        (
            "2024-04-10 04:59:03 | INFO | logs | Total loss at epoch 5, step at 58400, loss=31.05",
            {"step": 58400, "loss": 31.05},
        ),
        (
            "Training Progress:   1%|          | 5/435 [05:00<7:10:00, 60.1s/it]",
            {"step": 5, "total": 435},
        ),
        (
            " iteration       10/   500000 | consumed samples:        2560 | elapsed time per "
            "iteration (ms): 1234.5 | lm loss: 1.034000E+01 | grad norm: 1.2 |",
            {"step": 10, "total": 500000, "seconds": 1.2345, "loss": 10.34},
        ),
        (
            "step:12 - global_seqlen/min:100 - actor/loss:0.3 - timing_s/step:123.4",
            {"step": 12, "seconds": 123.4, "loss": 0.3},
        ),
        ("iter 100: loss 1.2345, time 123.45ms, mfu 30%", {"step": 100, "seconds": 0.12345}),
        (
            "step: 10  loss:  8.1234  memory: 10GiB tps: 5,123 mfu: 40%",
            {"step": 10, "tokens_per_second": 5123.0},
        ),
        (
            "{'loss': 1.23, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.12}",
            {"epoch": 0.12, "loss": 1.23},
        ),
        (
            "Epoch: [0]  [ 10/1000]  eta: 0:10:00  lr: 0.1  loss: 3.2 (3.3)  time: 0.5",
            {"step": 10, "seconds": 0.5},
        ),
        (
            "Epoch(train)  [1][  50/1000]  lr: 1.0e-02  time: 0.6  loss: 4.1",
            {"step": 50, "total": 1000},
        ),
        (
            "Training epoch 0, iteration 12/99 | lr: 1 | global_step: 712 | reduced_train_loss: 11.03",
            {"step": 712},
        ),
        (
            "steps: 10 loss: 1.2 iter time (s): 0.123 samples/sec: 32.1",
            {"step": 10, "seconds": 0.123},
        ),
        ("trainer.py:501] Training: step 198", {"step": 198}),
        (
            "[batch=12/4800]: Train time/batch: 11, loss/train/total: 2.0",
            {"step": 12, "total": 4800},
        ),
        (
            "[Epoch 1 1/2][Iteration 61991][Wall Clock 9s] Trained 3072 records. Loss is 2.5.",
            {"step": 61991, "loss": 2.5},
        ),
        ("12.5 sec/step, loss 2.31, step 40, time 278344", {"step": 40, "seconds": 12.5}),
        ("TIMING step=5: step=1.234s data=0.01s", {"step": 5, "seconds": 1.234}),
        ("perf 3: {'perf/step_time': 61.2, 'perf/train_time': 40.0}", {"step": 3, "seconds": 61.2}),
        (
            "Training Batches Processed:  10%|█   | 10/100 [10:00<90:00, 61.2s/it]",
            {"step": 10, "seconds": 61.2},
        ),
    ],
)
def test_formats(text: str, expected: dict[str, float]) -> None:
    step = parse_step(text)
    assert step is not None
    for key, value in expected.items():
        assert getattr(step, key) == pytest.approx(value)
    assert any(hint in text.encode() for hint in HINTS)


def test_a_time_without_a_unit_is_no_duration() -> None:
    step = parse_step("step 12 loss 2.3 time 278344")
    assert step is not None
    assert step.seconds is None


def test_hours_a_step_are_believed_by_dated_lines_only() -> None:
    step = ReportedStep(step=1, seconds=278344.2)
    undated = [StepSeen(step=step, offset=n) for n in range(4)]
    assert usual_seconds(undated) is None
    dated = [
        StepSeen(
            step=ReportedStep(step=n, seconds=278344.2), offset=n, time=60.0 * n, own_time=True
        )
        for n in range(4)
    ]
    assert usual_seconds(dated) == 60.0


def test_a_gradient_that_is_no_number_is_called_that() -> None:
    step = parse_step("iteration 7/ 100 | grad norm: nan |")
    assert step is not None
    assert step.of == "gradient norm"


@pytest.mark.parametrize(
    "text",
    [
        "Loading checkpoint shards: 100%|███| 30/30 [00:01<00:00, 3.1it/s]",
        "Multi-thread loading shards: 40% Completed | 12/30 [00:01<00:02,  8.0it/s]",
        "Evaluating:  45%|####      | 450/1000 [10:00<12:00,  1.31s/it]",
        "Capturing CUDA graphs:  45%|####      | 45/100 [10:00<12:00,  1.31s/it]",
        "model.safetensors: 100%|##########| 4.9G/4.9G [01:00<00:00, 80.0MB/s]",
        "saving checkpoint at step 200",
        "Update weights:   6%|6         | 1/16 [00:01<00:15,  1.0it/s]",
        "Missing key step: 3",
        "plain text",
        "",
    ],
)
def test_no_training_step(text: str) -> None:
    assert parse_step(text) is None


def test_a_loss_that_is_no_number() -> None:
    step = parse_step("completed step: 5, seconds: 1.0, loss: nan")
    assert step is not None
    assert step.loss is not None
    assert math.isnan(step.loss)
    step = parse_step("{'loss': inf, 'grad_norm': nan, 'epoch': 0.12}")
    assert step is not None
    assert step.loss == math.inf


@given(st.text(max_size=400))
def test_any_text(text: str) -> None:
    parse_step(text)
    parse_step(f"step {text} loss: {text}")

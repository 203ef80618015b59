# ruff: noqa: E501 - log lines are as long as they are
"""The steps of stacks that say a step's number and its duration on lines of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_sentinel.logs.catalogue import load_catalogue
from ray_sentinel.logs.triage import triage_path

NEMO = """
========================= Step {n}/100 =========================
▶ Preparing batch...
▶ Taking a training step...

📊 Training Results:
  • Loss: 0.{n:04d}
  • Avg Reward: 0.5000

⏱️  Timing:
  • Total step time: {s:.2f}s
  • policy_training: 30.00s (50.0%)
"""
SKY = """\
(skyrl_entrypoint pid=7) 2025-05-01 10:{n:02d}:00.123 | INFO     | skyrl.train.utils.utils:__enter__:95 - Started: 'step'
(skyrl_entrypoint pid=7) 2025-05-01 10:{n:02d}:20.123 | INFO     | skyrl.train.utils.utils:__exit__:101 - Finished: 'generate', time cost: 20.00s
(skyrl_entrypoint pid=7) 2025-05-01 10:{n:02d}:59.123 | INFO     | skyrl.train.utils.utils:__exit__:101 - Finished: 'step', time cost: {s:.2f}s
"""
SKY_BAR = "(skyrl_entrypoint pid=7) Training Batches Processed:  {n}%|#         | {m}/300 [10:00<20:00, {s:.1f}s/it]\n"
SKY_PARTS = (
    "(PolicyWorker pid=9) Policy Train epoch [1/1]:  75%|#######   | 6/8 [00:20<00:05,  3.1s/it]\n"
)
SLIME = "(RolloutManager pid=1) [2025-05-01 10:{n:02d}:00] train_metric_utils.py:44 - perf {n}: {{'perf/step_time': {s:.2f}, 'perf/wait_time_ratio': 0.1}}\n"
TORCHSPEC = "2025-05-01 10:{n:02d}:00 INFO TIMING step={n}: step={s:.3f}s data=0.1s\n"
COMPOSER = "[batch={n}/3200]:\n\t Train time/epoch: 0\n\t Train loss/train/total: 5.1\n\t Train throughput/batches_per_sec: {r:.6f}\n"
PLAIN = "INFO trainer: step {n}/100\nINFO trainer: Step time: {s:.2f} s\n"
BESIDE = "step {n}/100 | loss 2.5\nTrain iteration took {ms:.0f} ms\n"
SECONDS = 61.5


def text(*forms: str, steps: int = 8, first: int = 0) -> str:
    return "".join(
        form.format(n=n, m=first + n, s=SECONDS, r=1 / SECONDS, ms=1000 * SECONDS)
        for n in range(1, steps)
        for form in forms
    )


@pytest.mark.parametrize(
    ("log", "last"),
    [
        (text(NEMO), 7),
        (text(NEMO) + "\n========================= Step 8/100 =========================\n▶ Preparing batch...\n", 7),
        (text(SKY), 7),
        (text(SKY, SKY_BAR, first=100), 107),
        (text(SKY_PARTS, SKY), 7),
        (text(SLIME), 7),
        (text(TORCHSPEC), 7),
        (text(COMPOSER), 7),
        (text(PLAIN.replace("INFO trainer: S", "S")), 7),
        (text(BESIDE), 7),
    ],
    ids=["NeMo-RL", "NeMo-RL, one begun", "SkyRL", "SkyRL, resumed", "SkyRL, parts of steps", "slime", "TorchSpec", "Composer", "plain", "after a loss"],
)  # fmt: skip
def test_steps_and_their_durations(log: str, last: int, tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(log, encoding="utf-8")
    progress = triage_path(tmp_path, load_catalogue(), now=0.0).progress
    assert progress.last_step == last
    assert progress.step_seconds == pytest.approx(SECONDS, rel=0.01)


def test_the_loss_of_nemo_rl_is_its_steps(tmp_path: Path) -> None:
    log = text(NEMO) + "".join(
        NEMO.format(n=n, s=60.0).replace(f"Loss: 0.{n:04d}", "Loss: nan") for n in range(8, 12)
    )
    (tmp_path / "job.log").write_text(log, encoding="utf-8")
    assert triage_path(tmp_path, load_catalogue(), now=0.0).kind == "nan-loss"


def test_a_list_of_results_without_steps_is_none(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text("Loss: 0.5\nLoss: 0.4\nFinished: 'eval', time cost: 3.00s\n")
    assert triage_path(tmp_path, load_catalogue(), now=0.0).progress.last_step is None

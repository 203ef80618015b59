"""The callbacks with the real frameworks, on a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ray_sentinel
from ray_sentinel.progress.rank.writer import ProgressWriter
from tests.support.parts import require_module

pytestmark = pytest.mark.integration


class Told:
    """What reached the record."""

    def __init__(self) -> None:
        self.steps: list[int | None] = []
        self.phases: list[str] = []
        self.scalars: set[str] = set()
        self.writers: set[ProgressWriter] = set()


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Told]:
    """Records into a folder of our own; nothing is deployed."""
    monkeypatch.setenv("RAY_SENTINEL_RECORD_DIR", str(tmp_path))
    monkeypatch.setenv("RAY_SENTINEL_AUTOSTEP", "0")
    # Where no cluster is named, the one that other tests left on this machine would be taken.
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    found = Told()
    step, begin = ProgressWriter.step, ProgressWriter.begin_phase

    def noted(self: ProgressWriter, n: int | None = None, /, **scalars: Any) -> None:
        found.writers.add(self)
        found.steps.append(n)
        found.scalars |= scalars.keys()
        step(self, n, **scalars)

    def begun(self: ProgressWriter, name: str) -> tuple[str, float]:
        found.writers.add(self)
        found.phases.append(name)
        return begin(self, name)

    monkeypatch.setattr(ProgressWriter, "step", noted)
    monkeypatch.setattr(ProgressWriter, "begin_phase", begun)
    yield found
    assert all(writer.attached for writer in found.writers)
    if found.writers:
        ray_sentinel.attach().detach()  # the one that the callback attached
    assert not any(writer.attached for writer in found.writers)


def test_lightning(told: Told, tmp_path: Path) -> None:
    require_module("lightning")
    import torch
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint

    from ray_sentinel.frameworks.lightning import LightningCallback

    class Model(LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            return self.layer(batch[0]).mean()

        def validation_step(self, batch: Any, index: int) -> None:
            self.layer(batch[0])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(32, 4)), 4)
    trainer = Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=str(tmp_path),
        accumulate_grad_batches=2,
        callbacks=[
            LightningCallback("lightning-job"),
            ModelCheckpoint(dirpath=str(tmp_path / "c"), every_n_train_steps=2),
        ],
    )
    trainer.fit(Model(), data, data)
    assert told.steps == list(range(1, 9))
    assert told.phases.count("evaluate") >= 2
    assert told.phases.count("checkpoint") == 4


def test_transformers(told: Told, tmp_path: Path) -> None:
    require_module("transformers", "transformers accelerate")
    import torch
    from transformers import Trainer, TrainingArguments

    from ray_sentinel.frameworks.transformers import TransformersCallback

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
            out = self.layer(x)
            return {"loss": (out - labels).pow(2).mean(), "logits": out}

    data = [{"x": torch.ones(4), "labels": torch.zeros(1)} for _ in range(16)]
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=8,
        per_device_train_batch_size=2,
        eval_strategy="steps",
        eval_steps=4,
        save_steps=4,
        logging_steps=1,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=Model(),
        args=arguments,
        train_dataset=data,
        eval_dataset=data,
        callbacks=[TransformersCallback("hf-job")],
    )
    trainer.train()
    assert told.steps == list(range(1, 9))
    assert told.phases[:4] == ["evaluate", "checkpoint", "evaluate", "checkpoint"]
    assert "loss" in told.scalars

"""For Lightning's ``Trainer``:

    trainer = Trainer(..., callbacks=[LightningCallback()])

Steps, validations and checkpoints are reported. Optimizer steps are counted, so that accumulated
batches are one step.
"""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

import ray_sentinel
from ray_sentinel.frameworks.phases import TOLD, Phases, numbers
from ray_sentinel.sentinel import Sentinel


class LightningCallback(Callback):  # type: ignore[misc]
    """Attaches each rank when its training begins. Arguments go to ``ray_sentinel.attach``."""

    def __init__(self, job: str | None = None, config: Any = None) -> None:
        super().__init__()
        self._job, self._config = job, config
        self._sentinel: Sentinel | None = None
        self._phases = Phases()
        self._step = 0

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Attach the rank, once, when fitting begins."""
        if stage == "fit" and self._sentinel is None:
            size = int(trainer.world_size)
            rank = int(trainer.global_rank) if size > 1 else None
            self._sentinel = ray_sentinel.attach(
                self._job, rank, size if size > 1 else None, self._config
            )
            self._step = trainer.global_step

    def on_train_batch_start(self, *_: Any) -> None:
        """A batch begins, so a validation or checkpoint is over."""
        self._phases.end()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """Report a step if the optimizer has made one, with its logged scalars (``TOLD``)."""
        self._phases.end()
        if self._sentinel is not None and trainer.global_step > self._step:
            self._step = trainer.global_step
            self._sentinel.step(self._step, **numbers(trainer.callback_metrics, TOLD))

    def on_validation_start(self, *_: Any) -> None:
        """Enter the phase "evaluate"."""
        self._phases.begin(self._sentinel, "evaluate")

    def on_validation_end(self, *_: Any) -> None:
        """Leave the phase "evaluate"."""
        self._phases.end()

    def on_save_checkpoint(self, *_: Any) -> None:
        """Enter the phase "checkpoint"."""
        # Called while the checkpoint is put together; the next call shows that it has been written.
        self._phases.begin(self._sentinel, "checkpoint")

    def on_train_epoch_start(self, *_: Any) -> None:
        """An epoch begins, so a validation or checkpoint is over."""
        self._phases.end()

    def on_train_end(self, *_: Any) -> None:
        """Training has ended, and with it any phase."""
        self._phases.end()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """End any phase before the trainer is torn down."""
        self._phases.end()

"""For Hugging Face's ``Trainer``:

    trainer = Trainer(..., callbacks=[TransformersCallback()])

Steps, evaluations and checkpoints are told; the loss and the gradient norm are as ``logging_steps``
makes them.
"""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

import ray_sentinel
from ray_sentinel.frameworks.phases import TOLD, Phases, numbers
from ray_sentinel.sentinel import Sentinel


class TransformersCallback(TrainerCallback):  # type: ignore[misc]
    """Attaches each rank when its training begins. Arguments go to ``ray_sentinel.attach``."""

    def __init__(self, job: str | None = None, config: Any = None) -> None:
        self._job, self._config = job, config
        self._sentinel: Sentinel | None = None
        self._phases = Phases()
        self._scalars: dict[str, float] = {}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        size = int(args.world_size)
        rank = int(args.process_index) if size > 1 else None
        self._sentinel = ray_sentinel.attach(
            self._job, rank, size if size > 1 else None, self._config
        )

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        if self._sentinel is not None:
            self._sentinel.step(state.global_step, **self._scalars)
            self._scalars = {}
        self._foresee(control)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self._foresee(control)

    def _foresee(self, control: TrainerControl) -> None:
        """The trainer evaluates first and saves then; both are decided when a step ends."""
        if control.should_evaluate:
            self._phases.begin(self._sentinel, "evaluate")
        elif control.should_save:
            self._phases.begin(self._sentinel, "checkpoint")

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self._phases.end()
        if control.should_save:
            self._phases.begin(self._sentinel, "checkpoint")

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self._phases.end()

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self._phases.end()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        self._scalars = numbers(logs or {}, TOLD)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self._phases.end()
        self._phases.begin(self._sentinel, "teardown")

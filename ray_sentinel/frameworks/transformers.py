"""For Hugging Face's ``Trainer``:

    trainer = Trainer(..., callbacks=[TransformersCallback()])

Steps, evaluations and checkpoints are reported; the loss and the gradient norm are as
``logging_steps`` makes them.
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
        """Attach the rank."""
        size = int(args.world_size)
        rank = int(args.process_index) if size > 1 else None
        self._sentinel = ray_sentinel.attach(
            self._job, rank, size if size > 1 else None, self._config
        )

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Report the step with the last logged scalars, and enter the phase that follows."""
        if self._sentinel is not None:
            self._sentinel.step(state.global_step, **self._scalars)
            self._scalars = {}
        self._foresee(control)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Enter the phase that follows the epoch."""
        self._foresee(control)

    def _foresee(self, control: TrainerControl) -> None:
        """Enter the phase that follows: the trainer evaluates first and saves then, and both are
        decided when a step ends."""
        if control.should_evaluate:
            self._phases.begin(self._sentinel, "evaluate")
        elif control.should_save:
            self._phases.begin(self._sentinel, "checkpoint")

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """The evaluation is over; a save may follow."""
        self._phases.end()
        if control.should_save:
            self._phases.begin(self._sentinel, "checkpoint")

    def on_save(self, *_: Any, **__: Any) -> None:
        """The checkpoint is written."""
        self._phases.end()

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """A step begins, so an evaluation or a save is over."""
        self._phases.end()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Keep the logged scalars (``TOLD``) for the next step."""
        self._scalars = numbers(logs or {}, TOLD)

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Enter the phase "teardown"."""
        self._phases.end()
        self._phases.begin(self._sentinel, "teardown")

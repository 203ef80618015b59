"""Steps counted without being told: each step of the first optimizer is a step of the training.

PyTorch calls hooks around every ``Optimizer.step`` (``register_optimizer_step_post_hook`` of
torch.optim.optimizer). So ``attach()`` alone is enough for a PyTorch training; the first explicit
``step()`` ends the counting for good. Never imports torch itself: it waits until the training has.
"""

from __future__ import annotations

import os
import sys
import weakref
from typing import Any

from ray_sentinel.progress.writer import ProgressWriter

SWITCH = "RAY_SENTINEL_AUTOSTEP"
"""Set to 0, optimizers are left alone."""


class AutoStep:
    """Counts for one writer. ``look`` is called now and then, by the companion thread."""

    def __init__(self, writer: ProgressWriter) -> None:
        self._writer = writer
        self._counted = 0
        self._leader: weakref.ref[Any] | None = None
        self._handle: Any = None
        self._off = os.environ.get(SWITCH) == "0"

    def look(self) -> None:
        """Install the hook once torch's optimizers are there; take it away when not needed."""
        if self._off:
            return
        if self._writer.steps_recorded > self._counted:
            self.stop()
        elif self._handle is None:
            register = getattr(
                sys.modules.get("torch.optim.optimizer"), "register_optimizer_step_post_hook", None
            )
            if register is not None:
                self._handle = register(self._after_step)

    def stop(self) -> None:
        """Count no more."""
        self._off = True
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._off or self._writer.steps_recorded > self._counted:
            return
        # A second optimizer (a discriminator's, say) takes its steps within the same step.
        if self._leader is None or self._leader() is None:
            self._leader = weakref.ref(optimizer)
        if self._leader() is optimizer:
            self._counted += 1
            self._writer.step()

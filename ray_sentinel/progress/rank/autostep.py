"""Counts steps automatically: each step of the first optimizer is a training step.

PyTorch calls hooks around every ``Optimizer.step`` (``register_optimizer_step_post_hook`` of
torch.optim.optimizer). So ``attach()`` alone is enough for a PyTorch training; the first explicit
``step()`` ends the counting for good. Never imports torch itself: it waits until the training has.
"""

from __future__ import annotations

import os
import sys
import weakref
from typing import Any

from ray_sentinel.progress.rank.writer import ProgressWriter

SWITCH = "RAY_SENTINEL_AUTOSTEP"
"""The variable which, when set to 0, leaves optimizers alone."""

_hooked: Any = None
"""torch's function for registering hooks, once ``_after_step`` is registered with it."""
_counters: set[AutoStep] = set()
"""The counters that are called at each step of an optimizer."""


class AutoStep:
    """Counts for one writer. The companion thread calls ``poll`` from time to time.

    There is one hook in a process, and it stays there: torch runs through its hooks in the training
    thread, and a hook that is taken away meanwhile makes ``Optimizer.step`` raise RuntimeError.
    """

    def __init__(self, writer: ProgressWriter) -> None:
        self._writer = writer
        self._counted = 0
        self._leader: weakref.ref[Any] | None = None
        self._off = os.environ.get(SWITCH) == "0"

    def poll(self) -> None:
        """Begin to count once torch's optimizers exist; stop when the training counts by itself."""
        if self._off:
            return
        if self._writer.steps_recorded > self._counted:
            self.stop()
        elif self not in _counters and _install():
            _counters.add(self)

    def stop(self) -> None:
        """Stop counting. The hook stays registered and returns at once."""
        self._off = True
        _counters.discard(self)

    def after_step(self, optimizer: Any) -> None:
        """An optimizer has taken a step, in whichever thread."""
        if self._off or self._writer.steps_recorded > self._counted:
            return
        # A second optimizer (a discriminator's, say) takes its steps within the same step.
        if self._leader is None or self._leader() is None:
            self._leader = weakref.ref(optimizer)
        if self._leader() is optimizer:
            self._counted += 1
            self._writer.step()


def _install() -> bool:
    """Register the hook with torch, once in a process; False where torch is not there (yet)."""
    global _hooked
    register = getattr(
        sys.modules.get("torch.optim.optimizer"), "register_optimizer_step_post_hook", None
    )
    if register is not None and register != _hooked:
        # This too changes what the training thread may be running through, but can do harm only
        # while another hook of the same kind runs: without one, torch is through at once.
        register(_after_step)
        _hooked = register
    return register is not None


def _after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
    # The companion threads change the set: the copy is made in one step.
    for counter in tuple(_counters):
        counter.after_step(optimizer)

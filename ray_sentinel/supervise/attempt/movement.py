"""Whether an attempt makes progress, by its steps and output, and since when it does not. Pure.

Steps are progress. Output is a weaker sign: an evaluation or an export prints without making steps,
but so do some jobs that hang. So output counts for as long as a start-up may take, and no longer.
"""

from __future__ import annotations

from ray_sentinel.supervise.policy import Policy


class AttemptMovement:
    """The movement of one attempt. Times are seconds of any one clock."""

    def __init__(self, policy: Policy, now: float, start: int = 0) -> None:
        """``start`` is the step that the attempt starts from."""
        self._policy = policy
        self._moved = self._spoke = now
        self._start = start
        self._steps = 0
        self.step: int | None = None
        """The last step."""

    def stepped(self, step: int | None, now: float) -> bool:
        """Record the last known step. Returns whether it has changed."""
        if step is None or step == self.step:
            return False
        self.step = step
        self._steps += 1
        self._moved = now
        return True

    def spoke(self, now: float) -> None:
        """Record that there was output."""
        self._spoke = now

    def saved(self, now: float) -> None:
        """Record that a checkpoint was written."""
        self._moved = now

    def stagnates(self, now: float) -> str:
        """A sentence if it has not moved for too long; otherwise empty."""
        # The first step compiles kernels, and may be announced before it is made.
        known = self._steps > 1 or (self.step is not None and self.step > self._start + 1)
        limit = self._policy.stagnation_threshold if known else self._policy.startup_threshold
        still = now - self._moved
        silent = now - max(self._moved, self._spoke)
        most = max(limit, self._policy.startup_threshold)
        if limit <= 0 or (silent <= limit and (not known or still <= most)):
            return ""
        if self.step is None:
            return f"no output and no step for {silent:.0f} s"
        return f"no step after step {self.step} for {still:.0f} s"

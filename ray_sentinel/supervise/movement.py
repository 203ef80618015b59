"""Whether an attempt moves, from its steps and its output; and since when it does not. Pure."""

from __future__ import annotations

from ray_sentinel.supervise.policy import Policy


class Movement:
    """One attempt. Times are any clock's seconds."""

    def __init__(self, policy: Policy, now: float, start: int = 0) -> None:
        """``start`` is the step that the attempt starts from."""
        self._policy = policy
        self._moved = now
        self._start = start
        self._steps = 0
        self.step: int | None = None
        """The last step."""

    def stepped(self, step: int | None, now: float) -> bool:
        """Take the last step that is known; whether it is another than before."""
        if step is None or step == self.step:
            return False
        self.step = step
        self._steps += 1
        self._moved = now
        return True

    def spoke(self, now: float) -> None:
        """There was output: that counts until the first step only."""
        if self.step is None:
            self._moved = now

    def saved(self, now: float) -> None:
        """A checkpoint was written."""
        self._moved = now

    def stagnates(self, now: float) -> str:
        """A sentence where it has not moved for too long; else empty."""
        quiet = now - self._moved
        # The first step compiles kernels, and may be announced before it is made.
        known = self._steps > 1 or (self.step is not None and self.step > self._start + 1)
        limit = self._policy.stagnation_threshold if known else self._policy.startup_threshold
        if limit <= 0 or quiet <= limit:
            return ""
        if self.step is None:
            return f"no output and no step for {quiet:.0f} s"
        return f"no step after step {self.step} for {quiet:.0f} s"

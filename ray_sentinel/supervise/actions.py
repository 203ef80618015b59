"""The actions of a ``RestartStateMachine``, and the result of a run."""

from __future__ import annotations

import msgspec

from ray_sentinel.supervise.bad_nodes import BadNode
from ray_sentinel.supervise.policy import ResumePoint


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """How the run ended."""

    success: bool
    reason: str
    final_step: int | None
    total_retries: int
    time_lost_seconds: float
    """Seconds lost to failures: from the last checkpoint before each failure, or the attempt's
    start, to the restart."""
    stopped_by: int | None = None
    """The signal that stopped the supervisor; None if there was none."""
    bad_nodes: tuple[BadNode, ...] = ()
    """Nodes that were found to be bad on the way; later attempts were to do without them."""


class SupervisorAction(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all actions."""


class Choose(SupervisorAction, frozen=True):
    """Find the best checkpoint other than these; answered by Offered."""

    without: frozenset[ResumePoint] = frozenset()


class Launch(SupervisorAction, frozen=True):
    """Start the command; answered by Started."""

    attempt: int
    checkpoint: ResumePoint | None
    without: tuple[str, ...] = ()
    """Hosts that are bad and must not be used."""


class SecureEvidence(SupervisorAction, frozen=True):
    """Secure the evidence; answered by Captured."""

    why: str


class EndAttempt(SupervisorAction, frozen=True):
    """End the attempt gracefully; answered by Exited or Unkillable."""

    signal: int = 15


class Clear(SupervisorAction, frozen=True):
    """Check whether GPUs, ports and actors are free; answered by Cleared."""


class Announce(SupervisorAction, frozen=True):
    """Tell people. ``event`` is set if it is also sent as a notification."""

    text: str
    event: str = ""


class Finish(SupervisorAction, frozen=True):
    """The run is over."""

    result: RunResult

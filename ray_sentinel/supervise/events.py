"""The events that a ``RestartStateMachine`` handles."""

from __future__ import annotations

import msgspec

from ray_sentinel.clock import Moment
from ray_sentinel.supervise.bad_nodes import BadNode
from ray_sentinel.supervise.policy import Failure, ResumePoint


class SupervisorEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all events."""

    time: Moment


class AttemptStarted(SupervisorEvent, frozen=True):
    """The attempt's process runs: it was just started, or a new supervisor found it running."""


class Progressed(SupervisorEvent, frozen=True):
    """A later step than any of this attempt was made."""

    step: int


class Saved(SupervisorEvent, frozen=True):
    """A later checkpoint than the one that this attempt started from is complete."""

    step: int


class HangSeen(SupervisorEvent, frozen=True):
    """A hang: confirmed by the sentinel, or no progress for too long."""

    why: str


class NodesFound(SupervisorEvent, frozen=True):
    """Nodes that are bad, whether or not they were known before."""

    nodes: tuple[BadNode, ...]


class EvidenceSecured(SupervisorEvent, frozen=True):
    """The evidence has been saved, or could not be collected."""


class Exited(SupervisorEvent, frozen=True):
    """The attempt's process has ended, and so has everything that it left behind.

    ``failure`` is None if it succeeded.
    """

    failure: Failure | None
    last_saved: float | None = None
    """When the last good checkpoint was written; what came after it is lost. None if there is
    none."""


class Unkillable(SupervisorEvent, frozen=True):
    """The process did not end even by SIGKILL."""

    pid: int


class StopAsked(SupervisorEvent, frozen=True):
    """The supervisor was told to stop: by a signal, or by its caller."""

    signal: int


class Cleared(SupervisorEvent, frozen=True):
    """Whether what the old attempt held is free; ``problem`` says what is not."""

    problem: str = ""


class Offered(SupervisorEvent, frozen=True):
    """What to start from: None for the beginning. ``problem``: there is nothing to start from."""

    checkpoint: ResumePoint | None = None
    problem: str = ""


class TimePassed(SupervisorEvent, frozen=True):
    """Time has passed."""

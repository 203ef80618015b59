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
    """The attempt's process runs: just started, or found running by a new supervisor."""


class Progressed(SupervisorEvent, frozen=True):
    """A later step than any of this attempt was made."""

    step: int


class Saved(SupervisorEvent, frozen=True):
    """A later checkpoint than the one that this attempt started from is complete."""

    step: int


class HangSeen(SupervisorEvent, frozen=True):
    """Confirmed by the sentinel, or no progress for too long."""

    why: str


class NodesFound(SupervisorEvent, frozen=True):
    """Nodes that are bad, known before or not."""

    nodes: tuple[BadNode, ...]


class EvidenceSecured(SupervisorEvent, frozen=True):
    """The evidence is safe, or could not be had."""

    bundle: str = ""


class Exited(SupervisorEvent, frozen=True):
    """The attempt's process has ended, and what it left behind is gone too.

    ``failure`` is None where it ended well.
    """

    failure: Failure | None
    last_saved: float | None = None
    """When the last good checkpoint was written; what came after it is lost."""


class Unkillable(SupervisorEvent, frozen=True):
    """It did not go even by SIGKILL."""

    pid: int


class StopAsked(SupervisorEvent, frozen=True):
    """The supervisor was told to end: by a signal, or by its caller."""

    signal: int


class Cleared(SupervisorEvent, frozen=True):
    """Whether what the old attempt held is free; ``problem`` says what is not."""

    problem: str = ""


class Offered(SupervisorEvent, frozen=True):
    """What can be started from: None for the beginning. ``problem``: nothing can be."""

    checkpoint: ResumePoint | None = None
    problem: str = ""


class TimePassed(SupervisorEvent, frozen=True):
    """Time has passed."""

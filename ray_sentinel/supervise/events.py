"""What a ``Course`` is told."""

from __future__ import annotations

import msgspec

from ray_sentinel.clock import Moment
from ray_sentinel.supervise.bad_nodes import BadNode
from ray_sentinel.supervise.policy import Checkpoint, Failure


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all events."""

    time: Moment


class Started(Event, frozen=True):
    """The attempt's process runs: just started, or found running by a new supervisor."""


class Progressed(Event, frozen=True):
    """A later step than any of this attempt was made."""

    step: int


class Saved(Event, frozen=True):
    """A later checkpoint than the one that this attempt started from is complete."""

    step: int


class HangSeen(Event, frozen=True):
    """Confirmed by the sentinel, or no progress for too long."""

    why: str


class NodesFound(Event, frozen=True):
    """Nodes that are bad, known before or not."""

    nodes: tuple[BadNode, ...]


class Captured(Event, frozen=True):
    """The evidence is safe, or could not be had."""

    bundle: str = ""


class Exited(Event, frozen=True):
    """The attempt's process has ended, and what it left behind is gone too.

    ``failure`` is None where it ended well.
    """

    failure: Failure | None
    last_saved: float | None = None
    """When the last good checkpoint was written; what came after it is lost."""


class Unkillable(Event, frozen=True):
    """It did not go even by SIGKILL."""

    pid: int


class StopAsked(Event, frozen=True):
    """The supervisor was told to end: by a signal, or by its caller."""

    signal: int


class Cleared(Event, frozen=True):
    """Whether what the old attempt held is free; ``problem`` says what is not."""

    problem: str = ""


class Offered(Event, frozen=True):
    """What can be started from: None for the beginning. ``problem``: nothing can be."""

    checkpoint: Checkpoint | None = None
    problem: str = ""


class Tick(Event, frozen=True):
    """Time has passed."""

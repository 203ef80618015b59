"""The restart policy: how often, how fast and from where a command restarts; what a failure is."""

from __future__ import annotations

import msgspec

from ray_sentinel.supervise.bad_nodes import BadNode


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The user's settings."""

    max_retries: int = 10
    """Restarts without progress between them; progress refills the budget."""
    retry_delay: float = 10.0
    """Seconds before the first restart; each further one without progress doubles it."""
    max_delay: float = 900.0
    jitter: float = 0.2
    """Share of the delay that is drawn at random, up or down: many jobs must not return at once."""
    grace: float = 30.0
    """Seconds between SIGTERM and SIGKILL, when we end it."""
    stagnation_threshold: float = 300.0
    """Seconds without progress that count as a hang, where nothing better is known; 0 = never."""
    startup_threshold: float = 1800.0
    """The same before the first step of an attempt: models load, kernels compile."""
    capture_seconds: float = 90.0
    """How long a capture may hold up the end of a hanging attempt."""
    clear_seconds: float = 120.0
    """How long GPUs, ports and actors of the old attempt may take to be free."""
    always_restart: bool = False
    """Also for what a restart cannot cure."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """How an attempt failed, as far as its exit and its output show."""

    kind: str
    """A class of ``model.triage``, or "hang", "exit", "signal"."""
    text: str
    """One sentence."""
    exception: str = ""
    """Type and message of the first exception, digits aside: equal for equal failures."""
    step: int | None = None
    """The last step that was made, where one is known."""
    began: bool = False
    """It got through its start, whether or not its steps are known."""
    code: int | None = None
    signal: int | None = None
    seconds: float = 0.0
    """How long the attempt ran."""
    nodes: tuple[BadNode, ...] = ()
    """Those that its output blames."""


class ResumePoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where an attempt starts from. A checkpoint that is written again is a different point."""

    path: str
    step: int
    modified: float = 0.0

"""The restart policy: how often, how fast and from where a command restarts; what a failure is."""

from __future__ import annotations

import msgspec

from ray_sentinel.supervise.bad_nodes import BadNode


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The user's settings."""

    max_retries: int = 10
    """Restarts that may follow each other without progress; progress refills the budget."""
    retry_delay: float = 10.0
    """Seconds before the first restart; each further restart without progress doubles them."""
    max_delay: float = 900.0
    jitter: float = 0.2
    """Share of the delay that is drawn at random, up or down: many jobs must not return at once."""
    grace: float = 30.0
    """Seconds between SIGTERM and SIGKILL when an attempt is ended."""
    stagnation_threshold: float = 300.0
    """Seconds without progress that count as a hang if nothing better is known; 0 = never."""
    startup_threshold: float = 1800.0
    """Seconds before an attempt's first step that count as a hang: models load, kernels compile."""
    capture_seconds: float = 90.0
    """Seconds for which a capture may delay the end of a hanging attempt."""
    clear_seconds: float = 120.0
    """Seconds that GPUs, ports and actors of the old attempt may take to become free."""
    always_restart: bool = False
    """Whether to restart even after failures that a restart cannot cure."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """How an attempt failed, as far as its exit and its output show."""

    kind: str
    """A class of ``model.triage``, or "hang", "exit" or "signal"."""
    text: str
    """The failure in one sentence."""
    exception: str = ""
    """Type and message of the first exception without its digits, so that equal failures have equal
    texts."""
    step: int | None = None
    """The last step that was made; None if none is known."""
    began: bool = False
    """Whether the attempt got through its start, even if its steps are not known."""
    code: int | None = None
    signal: int | None = None
    seconds: float = 0.0
    """Seconds that the attempt ran."""
    nodes: tuple[BadNode, ...] = ()
    """The nodes that its output blames."""


class ResumePoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where an attempt starts from. A checkpoint that is written again is a different point."""

    path: str
    step: int
    modified: float = 0.0

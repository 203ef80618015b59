"""The functions by which a supervisor explains, watches, captures, cleans up and notifies. All
calls may block."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from ray_sentinel.supervise.bad_nodes import BadNode
from ray_sentinel.supervise.checkpoint_choice import Scan
from ray_sentinel.supervise.loadable import problem_of
from ray_sentinel.supervise.policy import Failure
from ray_sentinel.supervise.run_folder import State


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """What the sentinel reports about a job now."""

    hang: str = ""
    """One sentence if the sentinel has confirmed that the job hangs; otherwise empty."""
    bundle: str = ""
    """The folder with the evidence; empty until it has been captured."""
    bad_nodes: tuple[BadNode, ...] = ()
    """The nodes that its confirmed incidents blame."""


class JobParts(msgspec.Struct, frozen=True, kw_only=True):
    """The functions for the supervisor of a submitted job: fewer, because Ray ends and clears the
    job."""

    scan: Scan
    """A function that lists a checkpoint folder; raises SentinelError."""
    problem_at: Callable[[Path], str] = problem_of
    """A function that says why a checkpoint cannot load, on a machine where the folders are; the
    answer is empty if it seems whole."""
    explain: Callable[[str], Failure] = lambda output: Failure(kind="exit", text="it failed")
    """A function from the end of a failed attempt's output to its failure."""
    watch: Callable[[str, float], Sighting] = lambda job, since: Sighting()
    """A function that takes a job and a time; what was suspected before that concerns an earlier
    attempt."""
    say: Callable[[str], None] = lambda text: None
    notify: Callable[[str, str], object] = lambda event, text: None
    """A function as ``Parts.notify``."""


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """The functions for a supervisor, passed in so that the loop knows neither Ray nor the files of
    other parts."""

    explain: Callable[[Path, State], Failure | None]
    """A function from an attempt's folder and end to its failure; None if it ended well."""
    scan: Scan
    """A function that lists a checkpoint folder; raises SentinelError."""
    watch: Callable[[float], Sighting] | None = None
    """A function that takes a time; what was suspected before that concerns an earlier attempt.
    None if nobody watches."""
    capture: Callable[[State, Path, str], str] = lambda state, folder, why: ""
    """A function that captures evidence of the attempt's processes in a folder if the sentinel has
    none."""
    steps: Callable[[int], int | None] = lambda attempt: None
    """A function from an attempt's number to the last step in its ranks' own records."""
    clear: Callable[[State], str] = lambda state: ""
    """A function that says what the old attempt still holds; the answer is empty if all is free."""
    say: Callable[[str], None] = lambda text: None
    notify: Callable[[str, str], object] = lambda event, text: None
    """A function that takes an event ("hang", "bad-node", "restart", "failed", "success" or
    "stopped") and a sentence."""
    drain: Callable[[BadNode], str] | None = None
    """A function that stops the cluster from placing anything more on a node, and returns a
    sentence about how that went. None if nobody asked for it."""

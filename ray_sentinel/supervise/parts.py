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
    """One sentence where it has confirmed that the job hangs; else empty."""
    bundle: str = ""
    """The folder with the evidence, once it has been captured."""
    bad_nodes: tuple[BadNode, ...] = ()
    """Those that its confirmed incidents blame."""


class JobParts(msgspec.Struct, frozen=True, kw_only=True):
    """The functions for the supervisor of a submitted job: fewer, because Ray ends and clears the
    job."""

    scan: Scan
    """Lists a checkpoint folder; raises SentinelError."""
    problem_at: Callable[[Path], str] = problem_of
    """Why a checkpoint cannot load, where the folders are; empty where it seems whole."""
    explain: Callable[[str], Failure] = lambda output: Failure(kind="exit", text="it failed")
    """From the end of a failed attempt's output to its failure."""
    watch: Callable[[str, float], Sighting] = lambda job, since: Sighting()
    """By job, and since when: what was suspected earlier concerns an earlier attempt."""
    say: Callable[[str], None] = lambda text: None
    notify: Callable[[str, str], object] = lambda event, text: None
    """As ``Parts.notify``."""


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """The functions for a supervisor, passed in so that the loop knows neither Ray nor the files of
    other parts."""

    explain: Callable[[Path, State], Failure | None]
    """From an attempt's folder and end to its failure; None where it ended well."""
    scan: Scan
    """Lists a checkpoint folder; raises SentinelError."""
    watch: Callable[[float], Sighting] | None = None
    """Since when: what was suspected earlier concerns an earlier attempt. None where nobody
    watches."""
    capture: Callable[[State, Path, str], str] = lambda state, folder, why: ""
    """Evidence of the attempt's processes into a folder, where the sentinel has none."""
    steps: Callable[[int], int | None] = lambda attempt: None
    """By attempt, the last step in the ranks' own records."""
    clear: Callable[[State], str] = lambda state: ""
    """What the old attempt still holds; empty where all is free."""
    say: Callable[[str], None] = lambda text: None
    notify: Callable[[str, str], object] = lambda event, text: None
    """(event, sentence): "hang", "bad-node", "restart", "failed", "success", "stopped"."""
    drain: Callable[[BadNode], str] | None = None
    """Has the cluster place nothing more on a node; a sentence of what came of it. None where
    nobody asked for that."""

"""What a rank reports about itself, and what is visible of it from outside."""

from __future__ import annotations

from typing import Literal

import msgspec

from ray_sentinel.model.identity import Node, ProcessId, Rank
from ray_sentinel.model.metrics import CollectorStatus, Event
from ray_sentinel.model.samples import SampleBatch

STOPPED = frozenset({"T", "t"})
"""States of stopped processes, or ones that a tracer holds, as letters of ``/proc/<pid>/stat``."""
HELD = STOPPED | {"D"}
"""States of processes that are stopped, or blocked in the kernel."""
OVER = frozenset({"Z", "X"})
"""States of processes that have ended."""
RESTLESS = 0.95
"""Share of the time for which a thread that does not rest runs or waits for a CPU."""
UNCOUNTED = 0.75
"""Seconds of that time that the kernel may not have counted yet, at least: it adds a wait for a CPU
when the wait is over, and running time at its next tick."""


def may_be_restless(wanted: float, of: float, uncounted: float = UNCOUNTED) -> bool:
    """Whether a thread that has run or waited for a CPU for some seconds, and for up to
    ``uncounted`` more, may have gone without sleep.

    >>> [may_be_restless(*pair) for pair in ((0.4, 1.0), (0.1, 1.0), (27.0, 30.0), (29.5, 30.0))]
    [True, False, False, True]
    >>> may_be_restless(27.0, 30.0, uncounted=3.5)
    True
    """
    return wanted >= min(RESTLESS * of, of - uncounted)


class LastWords(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank wrote on its way out. A killed rank writes none."""

    time: float
    kind: Literal["exit", "exception", "detach"]
    text: str = ""
    """For an exception, its type and message, cut off if long."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank's shared-memory record says."""

    step: int | None = None
    step_ended_at: float | None = None
    step_seconds: float | None = None
    """Wall time of the last finished step."""
    recent_step_seconds: tuple[float, ...] = ()
    """Durations of the last finished steps, oldest first."""
    steps_recorded: int = 0
    """How many ``step()`` calls there were; it grows even where the step number does not."""
    phase: str = ""
    phase_since: float | None = None
    scalars: dict[str, float] = {}
    companion_tid: int | None = None
    last_words: LastWords | None = None
    attached_at: float | None = None


InterpreterState = Literal["runs", "gil-held", "starved", "unknown"]


class ProcessState(msgspec.Struct, frozen=True, kw_only=True):
    """A process as /proc shows it at one moment."""

    state: str
    """One letter of ``/proc/<pid>/stat``: R, S, D, T (stopped), t (traced), Z, X, I."""
    wchan: str = ""
    """The kernel function in which the main thread waits; empty when unknown."""
    cpu_seconds: float = 0.0
    """User and system time of all threads together, in seconds."""
    main_cpu_seconds: float = 0.0
    """User and system time of the main thread alone, in seconds."""
    main_switches: int = 0
    """How often the main thread was put on a CPU (third field of its schedstat)."""
    main_sleeps: int = 0
    """How often the main thread went to sleep by itself (``voluntary_ctxt_switches``)."""
    threads: int = 0
    rss_bytes: int = 0
    io_bytes: int = 0
    """Bytes read and written by system calls (rchar + wchar); 0 where unreadable."""
    frozen: bool = False
    """Whether its cgroup is frozen."""
    interpreter: InterpreterState = "unknown"
    """The interpreter's state, judged from the companion thread's stamp and scheduler state."""
    tracer_pid: int = 0


class RankSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One rank as its node's agent sees it."""

    rank: Rank
    process: ProcessState
    progress: Progress | None = None
    """What its record says; None where the rank never attached."""
    quiet_seconds: float = 0.0
    """Seconds for which the main thread has not been given a CPU, as far as the agent has watched.
    """


class RayProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A worker of Ray, or a driver, as /proc shows it. Times are on the agent's clock."""

    process: ProcessId
    title: str = ""
    """Ray's title for it: "Rollout.generate" while that runs, "Rollout" between two calls, "IDLE"
    where nothing has run yet; empty for a driver."""
    since: float = 0.0
    """Since when it has had this title, or was first seen with it."""
    moved_at: float = 0.0
    """When its main thread last ran, or its threads used a CPU together."""
    state: str = ""
    """Its state as one letter, as in ``ProcessState``."""
    busy_since: float | None = None
    """Since when its main thread has run or waited for a CPU without a rest; None while it rests.
    """
    engine: str = ""
    """The job of the inference engine whose ranks run below it; empty where there is none."""


class RayExit(msgspec.Struct, frozen=True, kw_only=True):
    """A Ray worker or driver that was reported as a ``RayProcess`` has ended."""

    process: ProcessId
    at: float
    """When it ended, on the agent's clock."""
    code: int | None = None
    """Exit status; None where a signal ended it, or nobody could tell."""
    signal: int | None = None
    last_output: str = ""
    """What a driver's standard error ends with, where that is a file of its own."""


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's process ended. ``order`` counts exits on this node in the order they were seen."""

    rank: Rank
    at: float
    order: int
    code: int | None = None
    """Exit status; None where nobody could tell."""
    signal: int | None = None
    """The signal that ended it, if one did and it could be told."""
    last_words: LastWords | None = None
    oom_killed: bool = False
    was_attached: bool = False
    progress: Progress | None = None
    """Its last progress before the end."""
    last_output: str = ""
    """The end of its standard error, where that is a file of its own; empty where not known."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent knows about its node at one moment; sent about once a second."""

    node: Node
    time: float
    """Unix seconds on the agent's own clock, which nobody sets: the wall clock when the agent
    started, plus the time that has passed since. All times in a snapshot are on it."""
    sequence: int
    ranks: tuple[RankSnapshot, ...] = ()
    exits: tuple[Exit, ...] = ()
    """Exits that the coordinator has not acknowledged yet; they are sent again until it has."""
    collectors: tuple[CollectorStatus, ...] = ()
    samples: tuple[SampleBatch, ...] = ()
    """Values for the rules and the embedded history; only in snapshots in which there are new ones.
    """
    events: tuple[Event, ...] = ()
    metrics_url: str = ""
    ray_processes: tuple[RayProcess, ...] = ()
    """The workers of Ray's jobs, and the drivers, on this node; our own are left out."""
    ray_exits: tuple[RayExit, ...] = ()
    """How such processes have recently ended; each exit is reported for some seconds."""
    interval: float = 0.0
    """Seconds within which the next snapshot comes; 0 means as configured."""
    clock_shift: float = 0.0
    """Seconds by which the node's wall clock, which stamps what its ranks write, is ahead of the
    agent's clock, because it was set since the agent started."""
    version: int = 1

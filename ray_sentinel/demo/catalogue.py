"""Every fault that can be played, and what the sentinel must make of it.

This table is written first: it says what is true, whatever the sentinel says.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ray_sentinel.model.incident import FaultKind

Clock = Literal["hard", "silence", "start-up", "outside", "healthy"]
Layout = Literal["data", "ddp", "tensor", "pipeline", "experts"]

LAYOUTS: tuple[Layout, ...] = ("data", "ddp", "tensor", "pipeline", "experts")
DATA: tuple[Layout, ...] = ("data", "ddp")

LIMITS: dict[Clock, float] = {"hard": 5.0, "silence": 15.0, "start-up": 90.0, "outside": 75.0}
"""Seconds from the trouble until the culprit must be named, or until the report must say that there
is none, for each clock. Silence is distinguished from a slow step after max(10 s, 3 steps); none of
the trainings has steps of 3 s."""


class FaultSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A fault, where it can be played, and which verdicts on it are right."""

    what: str
    """What happens, for people."""
    kinds: tuple[FaultKind, ...] = ()
    """Kinds of faults that are a right answer; empty if the training is healthy."""
    ways: tuple[str, ...] = ()
    """What each culprit does to itself, one for each culprit."""
    clock: Clock = "silence"
    layouts: tuple[Layout, ...] = LAYOUTS
    place: Literal["step", "start", "end", "input"] = "step"
    """Where the trouble begins; "step" is before or amid the collectives of a step that is
    drawn."""


def _hard(what: str, kind: FaultKind, *ways: str) -> FaultSpec:
    return FaultSpec(what=what, kinds=(kind,), ways=ways, clock="hard")


def _silent(what: str, kind: FaultKind, *ways: str) -> FaultSpec:
    return FaultSpec(what=what, kinds=(kind,), ways=ways)


def _mismatch(what: str, way: str) -> FaultSpec:
    return FaultSpec(what=what, kinds=("collective-mismatch",), ways=(way,))


FAULTS: dict[str, FaultSpec] = {
    "exception": _hard("ends with an exception", "rank-dead", "exception"),
    "sigkill": _hard("is killed", "rank-dead", "sigkill"),
    "sigstop": _hard("is stopped", "rank-stopped", "sigstop"),
    "gil": _hard("sleeps in C and keeps the GIL", "gil-held", "gil"),
    "gil-spin": _hard("spins in C and keeps the GIL", "gil-held", "gil-spin"),
    "kernel": _hard("is blocked in the kernel, state D", "kernel-blocked", "kernel"),
    "leave": FaultSpec(
        what="leaves the loop early and ends with status 0",
        kinds=("rank-dead",),
        ways=("leave",),
        clock="hard",
        place="input",
    ),
    "two-killed": _hard("two ranks are killed", "rank-dead", "sigkill", "sigkill"),
    "two-stopped": _hard("two ranks are stopped", "rank-stopped", "sigstop", "sigstop"),
    "sleep": _silent("sleeps in code of its own", "host-stuck", "sleep"),
    "deadlock": _silent("waits for a lock that nobody releases", "lock-deadlock", "deadlock"),
    "fifo": _silent("reads from a FIFO that nobody writes to", "input-wait", "fifo"),
    "socket": _silent("reads from a socket that gives nothing", "input-wait", "socket"),
    "spin": _silent("spins in C without the GIL", "cpu-spin", "spin"),
    "loop": _silent("runs an endless Python loop", "cpu-spin", "loop"),
    "loader": _silent("waits for a dataloader's worker that sleeps", "input-wait", "loader"),
    "skip": _mismatch("leaves out a collective", "skip"),
    "order": _mismatch("calls two collectives in the other order", "order"),
    "shape": _mismatch("gives a collective a tensor of another size", "shape"),
    "dtype": _mismatch("gives a collective another dtype", "dtype"),
    "leave-loop": FaultSpec(
        what="leaves the loop early and waits at the last barrier",
        kinds=("collective-mismatch",),
        ways=("leave-loop",),
        place="input",
    ),
    "two-sleep": _silent("two ranks sleep in code of their own", "host-stuck", "sleep", "sleep"),
    "two-kinds": FaultSpec(
        what="one reads from a FIFO, one runs an endless loop",
        kinds=("input-wait", "cpu-spin"),
        ways=("fifo", "loop"),
        layouts=DATA,
    ),
    "two-clocks": FaultSpec(
        what="one is stopped, one reads from a FIFO",
        kinds=("rank-stopped",),
        ways=("sigstop", "fifo"),
        layouts=DATA,
    ),
    "start": FaultSpec(
        what="sleeps before the process group is there",
        kinds=("startup-stuck",),
        ways=("sleep",),
        clock="start-up",
        place="start",
    ),
    "end": FaultSpec(
        what="sleeps after the last step, and the others wait at a barrier",
        kinds=("host-stuck",),
        ways=("sleep",),
        place="end",
    ),
    "end-alone": FaultSpec(
        what="sleeps after the last step, and the others have ended",
        kinds=("host-stuck",),
        ways=("sleep",),
        clock="start-up",
        place="end",
    ),
    "outside": FaultSpec(
        what="all ranks wait for a service that does not answer", kinds=("stall",), clock="outside"
    ),
}

HEALTHY: dict[str, FaultSpec] = {
    name: FaultSpec(what=what, clock="healthy")
    for name, what in {
        "checkpoint": "a long checkpoint in its phase",
        "checkpoint-quiet": "a long checkpoint that nobody declares",
        "evaluate": "a long evaluation that nobody declares",
        "slow-first": "a first step that takes 20 s",
        "vary": "steps that vary by a factor of 5",
        "pause": "all ranks are stopped for a while",
        "finish": "the job ends, and one rank takes its time",
        "restart": "the job is ended and started again",
        "resize": "it is started again with another number of ranks",
        "join": "a node joins",
    }.items()
}

ALL: dict[str, FaultSpec] = {**FAULTS, **HEALTHY}

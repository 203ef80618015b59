"""The interface of a tracer, and its result.

A tracer is one file in ``tracers/`` with a class that follows ``Tracer`` and a module attribute
``TRACER``; it is found by looking into that folder. It runs one tool against one process under a
deadline and returns what the tool wrote. Whether the process is the right one, whether it runs
again afterwards, and how long it stood still is not the tracer's concern: ``guard`` takes care of
that.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import lru_cache
from typing import Protocol

import msgspec

from ray_sentinel.capture import tracers
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.stacks import StackTrace


class Traced(msgspec.Struct, frozen=True, kw_only=True):
    """What one tool returned for one process."""

    tool: str
    """The tracer's name."""
    trace: StackTrace
    raw: bytes = b""
    """The tool's output for the bundle; empty where it is not worth a file."""
    seconds: float = 0.0
    """Seconds of wall time that the tool took."""
    paused: float | None = None
    """Seconds for which the process was seen stopped by the tool; None where nobody looked."""
    timed_out: bool = False
    continued: bool = False
    """The tool had left the process stopped, and the process was continued."""
    skipped: bool = False
    """The tool was not run; the trace's ``error`` says why."""
    absent: bool = False
    """The tool was not run because it is not on this node."""

    @property
    def problem(self) -> str:
        """What went wrong; empty if nothing did."""
        return self.trace.error


class Tracer(Protocol):
    """A tool that takes the stacks of a process."""

    name: str
    """The tool's name, which the configuration uses too."""
    prefix: str
    """The prefix of the tool's files in a bundle: ``PREFIX_HOST_PID.txt``."""
    intrusive: bool
    """The tool stops the process while it looks."""

    def available(self) -> str:
        """Why it cannot be used on this node, with the remedy; empty if it can."""

    def trace(self, process: ProcessId, deadline: float) -> Traced:
        """Run the tool; at ``deadline`` (seconds) it is ended, by force within seconds more.

        What failed is in the trace's error.
        """


@lru_cache(maxsize=1)
def all_tracers() -> dict[str, Tracer]:
    """The tracers by name: the harmless first, then in the order of their pause."""
    found: list[Tracer] = [
        importlib.import_module(f"{tracers.__name__}.{info.name}").TRACER
        for info in pkgutil.iter_modules(tracers.__path__)
        if not info.name.startswith("_")
    ]
    return {item.name: item for item in sorted(found, key=lambda t: (t.intrusive, t.name))}

"""TCP connections between the processes of jobs, and over which of them an answer is awaited."""

from __future__ import annotations

import msgspec

from ray_sentinel.model.identity import ProcessId


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """One end of an established connection."""

    process: ProcessId
    """The process that was looked at."""
    owner: ProcessId
    """Whose it is: the same, or one that descends from it."""
    local: str
    """"10.0.0.1:40112"."""
    remote: str
    serves: bool
    """Somebody listens at the local port: the other end has asked for the connection."""
    asked_at: float | None = None
    """Unix time at which something was sent last, where nothing has come since; else None."""


class AwaitedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """``who`` has sent something to ``whom``, and nothing has come back since.

    ``asker`` and ``answerer`` are the owners of the two ends: the same processes, or some that
    descend from them.
    """

    who: ProcessId
    whom: ProcessId
    asker: ProcessId
    answerer: ProcessId
    since: float
    """Unix time."""

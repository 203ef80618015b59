"""TCP connections between the processes of jobs, on which of them an answer is awaited, and the
locks on files that are awaited."""

from __future__ import annotations

import msgspec

from ray_sentinel.model.identity import ProcessId


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """One end of an established connection on which an answer is due; or, without a ``remote``, a
    port at which a process listens."""

    process: ProcessId
    """The process that was looked at."""
    owner: ProcessId
    """The process that has the connection: ``process``, or one that descends from it."""
    local: str
    """Address and port of this end, such as "10.0.0.1:40112"."""
    network: str = ""
    """The network namespace that it is in, unique among all machines."""
    remote: str = ""
    serves: bool
    """Whether somebody listens at the local port. This end then owes the answer; otherwise it
    awaits it."""
    asked_at: float | None = None
    """Unix time at which this end sent its request; None for an end that serves."""


class AwaitedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """``who`` has sent ``whom`` a request, and nothing has come back since; or it waits for a lock
    on a file that ``whom`` holds, which is to be released.

    ``asker`` and ``answerer`` are the owners of the two ends: the same processes, or some that
    descend from them.
    """

    who: ProcessId
    whom: ProcessId
    asker: ProcessId
    answerer: ProcessId
    since: float
    """Unix time at which the request was sent; for a lock, at which the wait was seen."""
    lock: str = ""
    """The name of the locked file; empty for an answer over a connection."""
    stranger: str = ""
    """The name of the program that holds a lock, where ``whom`` is no process of the job."""

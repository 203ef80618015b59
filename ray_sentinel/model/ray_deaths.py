"""Why a process of a Ray job ended: one cause for each."""

from __future__ import annotations

from typing import Literal

import msgspec

DeathCause = Literal[
    "finished",
    "exception",
    "constructor",
    "signal",
    "exited",
    "oom-kernel",
    "oom-ray",
    "killed-by-ray",
    "owner-ended",
    "driver-ended",
    "node-drained",
    "node-lost",
    "runtime-env",
    "stopped",
    "unknown",
]
"""``finished``: it ended as its program asked. ``exception``: a task or a driver raised one.
``constructor``: an actor's ``__init__`` raised one. ``signal``: a signal ended it that no other
cause explains. ``exited``: it left by ``sys.exit`` or ``os._exit``, with whatever status.
``oom-kernel``: the kernel or the cgroup ran out of memory; ``oom-ray``: Ray's memory monitor killed
it. ``killed-by-ray``: by ``ray.kill``. ``owner-ended``, ``driver-ended``: it ended because the
process that made it did. ``node-drained``, ``node-lost``: it went with its node. ``runtime-env``:
its environment could not be made. ``stopped``: by ``ray stop``, ``ray job stop`` or Ctrl-C."""

ECHOES: frozenset[DeathCause] = frozenset({"owner-ended", "driver-ended"})
"""Causes of ends that follow from another process's end."""
INTENDED: frozenset[DeathCause] = frozenset(
    {"finished", "killed-by-ray", "node-drained", "stopped"}
)
"""Causes that somebody intended: they are no fault of the job."""


class RayDeath(msgspec.Struct, frozen=True, kw_only=True):
    """An actor, a driver or a worker that has ended."""

    what: Literal["actor", "driver", "worker"]
    id: str
    """Ray's id of the actor or worker, in hex; for a driver the id of its job."""
    job: str
    """Ray's job id, in hex."""
    label: str
    """Its name: "driver", the actor's name, or its class and number."""
    role: str = ""
    """One of "driver", the actor's class, and "task"."""
    method: str = ""
    """What it was running when it failed, such as "Rollout.generate"; empty where that is not
    known."""
    node: str = ""
    """Ray's node id, in hex; empty where that is not known."""
    address: str = ""
    """The address of its node."""
    host: str = ""
    pid: int = 0
    at: float = 0.0
    """Unix time of its end."""
    cause: DeathCause = "unknown"
    detail: str = ""
    """The exception, the signal, the memory that was used, or who ended it, in one line."""
    witness: str = ""
    """Who says so: "control store", "pidfd", "kernel log", "cgroup", "raylet log"."""
    is_proven: bool = True
    """Whether the cause is certain. It is not for a driver that ended by an exception or by Ctrl-C,
    where only its exit status tells which."""
    restarts: bool = False
    """Whether Ray starts it again."""

    @property
    def is_echo(self) -> bool:
        """Whether it ended because another did."""
        return self.cause in ECHOES

    @property
    def is_intended(self) -> bool:
        """Whether somebody intended its end."""
        return self.cause in INTENDED

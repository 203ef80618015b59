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
"""``finished``: it ended as its program asked. ``exception``: of a task or a driver.
``constructor``: of an actor's ``__init__``. ``signal``: not one that another cause explains.
``exited``: it left by ``sys.exit`` or ``os._exit``, with whatever status. ``oom-kernel``: the
kernel or the cgroup ran out of memory; ``oom-ray``: Ray's memory monitor killed it.
``killed-by-ray``: ``ray.kill``. ``owner-ended``, ``driver-ended``: it went because who made it did.
``node-drained``, ``node-lost``: it went with its node. ``runtime-env``: its environment could not
be made. ``stopped``: ``ray stop``, ``ray job stop`` or Ctrl-C."""

ECHOES: frozenset[DeathCause] = frozenset({"owner-ended", "driver-ended"})
"""Who ends so has ended because another did."""
INTENDED: frozenset[DeathCause] = frozenset(
    {"finished", "killed-by-ray", "node-drained", "stopped"}
)
"""Somebody wanted it: no fault of the job."""


class RayDeath(msgspec.Struct, frozen=True, kw_only=True):
    """An actor, a driver or a worker that has ended."""

    what: Literal["actor", "driver", "worker"]
    id: str
    """Ray's id of the actor or worker, in hex; of a driver the id of its job."""
    job: str
    """Ray's job id, in hex."""
    label: str
    """"driver", the actor's name, or its class and number."""
    role: str = ""
    """"driver", the actor's class, or "task"."""
    method: str = ""
    """What it ran when it failed: "Rollout.generate"; empty where that is not known."""
    node: str = ""
    """Ray's node id, in hex; empty where that is not known."""
    address: str = ""
    """Of its node."""
    host: str = ""
    pid: int = 0
    at: float = 0.0
    """Unix time."""
    cause: DeathCause = "unknown"
    detail: str = ""
    """One line: the exception, the signal, the memory that was used, who ended it."""
    witness: str = ""
    """Who says so: "control store", "pidfd", "kernel log", "cgroup", "raylet log"."""
    is_proven: bool = True
    """False for a driver that ended by an exception or by Ctrl-C, where only its exit status tells
    which."""
    restarts: bool = False
    """Ray starts it again."""

    @property
    def is_echo(self) -> bool:
        """Whether it ended because another did."""
        return self.cause in ECHOES

    @property
    def is_intended(self) -> bool:
        """Whether somebody intended its end."""
        return self.cause in INTENDED

"""The one way in which programs are started: with a deadline, in a group of their own, and ending
with us."""

from ray_sentinel.process.running import Completed, Interrupts, run
from ray_sentinel.process.spawning import (
    dying_with_us,
    end,
    end_all,
    kill,
    python_module,
    reap,
    spawn,
)

__all__ = [
    "Completed",
    "Interrupts",
    "dying_with_us",
    "end",
    "end_all",
    "kill",
    "python_module",
    "reap",
    "run",
    "spawn",
]

"""Ranks below the raylet of a chosen node, as those of a job in Ray are."""

from __future__ import annotations

import sys
from typing import Any

from tests.support.watched_job import PROGRAM, rank_environ


def start_rank_on(
    ray: Any, address: str, job: str, fault: str, rank: int, size: int = 2, at: int = 60
) -> Any:
    """An actor on that node, whose ``start`` makes the rank and returns its pid."""
    environ = rank_environ(job, rank, size)
    command = [sys.executable, str(PROGRAM), fault, "300", str(at)]

    class Launcher:
        def start(self) -> int:
            import subprocess

            self.child = subprocess.Popen(command, env=environ)
            return self.child.pid

        def end(self) -> None:
            self.child.kill()
            self.child.wait()

    launcher = ray.remote(Launcher).options(num_cpus=0, resources={f"node:{address}": 0.001})
    return launcher.remote()

"""The ranks of a training as Ray actors: each runs the script in its worker's own main thread."""

from __future__ import annotations

import os
import runpy
import signal
import sys
from collections.abc import Mapping
from typing import Any

from ray_sentinel import signals


class RankActor:
    """One rank. Its variables are those of its worker's runtime environment."""

    def pid(self) -> int:
        """The process id of the worker."""
        return os.getpid()

    def train(self, folder: str, script: str) -> None:
        """Run the script to its end; an exception of it is the task's."""
        os.chdir(folder)
        sys.path.insert(0, folder)
        runpy.run_path(script, run_name="__main__")


class ActorRanks:
    """All ranks of one job, on the nodes that were asked for."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._actors: dict[int, Any] = {}
        self._pids: dict[int, int] = {}
        self._starts: dict[int, int | None] = {}
        self._tasks: dict[int, Any] = {}

    def start(
        self,
        places: Mapping[int, tuple[str, int]],
        folder: str,
        script: str,
        variables: Mapping[str, str],
    ) -> dict[int, int]:
        """``places``: rank → address of its node and its number there. Returns pids by rank."""
        # Those of an earlier attempt may have been others.
        self._actors, self._pids, self._tasks = {}, {}, {}
        kind = self._ray.remote(RankActor)
        for rank, (address, local) in places.items():
            own = {**variables, "RANK": str(rank), "LOCAL_RANK": str(local)}
            self._actors[rank] = kind.options(
                num_cpus=0,
                max_restarts=0,
                resources={f"node:{address}": 0.001},
                runtime_env={"env_vars": own},
            ).remote()
        asked = {rank: self._actors[rank].pid.remote() for rank in places}
        found = self._ray.get(list(asked.values()), timeout=120)
        self._pids |= dict(zip(asked, found, strict=True))
        self._starts = {rank: signals.start_of(pid) for rank, pid in self._pids.items()}
        for rank in places:
            self._tasks[rank] = self._actors[rank].train.remote(folder, script)
        return {rank: self._pids[rank] for rank in places}

    def ended(self) -> dict[int, int]:
        """0 or 1 by rank, for those whose task is over, in whatever way."""
        ready, _ = self._ray.wait(list(self._tasks.values()), num_returns=len(self._tasks),
                                  timeout=0)  # fmt: skip
        over: dict[int, int] = {}
        for rank, task in self._tasks.items():
            if task in ready:
                try:
                    self._ray.get(task)
                    over[rank] = 0
                except self._ray.exceptions.RayError:
                    over[rank] = 1
        return over

    def signal(self, number: int) -> None:
        """Send a signal to the workers of all ranks that are left. They are on this machine."""
        ended = self.ended()
        for rank, pid in self._pids.items():
            if rank not in ended and (start := self._starts[rank]) is not None:
                signals.send(pid, start, number)

    def end(self) -> None:
        """End all, also what is stopped."""
        self.signal(signal.SIGKILL)
        for actor in self._actors.values():
            self._ray.kill(actor)
        self._actors, self._pids, self._tasks = {}, {}, {}

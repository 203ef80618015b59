"""The training job of the demo: six ranks of a script, two on each node, as plain processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from ray_sentinel import process
from ray_sentinel.demo.cluster import free_port
from ray_sentinel.demo.plan import WORLD_SIZE, Plan

ATTACH = "import ray_sentinel\n\nray_sentinel.attach()\n\n"
FUTURE = "from __future__ import annotations\n\n"


def write_scripts(folder: Path, plan: Plan, *, attach: bool) -> None:
    """Put the training script, its data module and the plan into ``folder``.

    With ``attach`` the script has the one call that a user would add; without it, it knows nothing
    of ray_sentinel.
    """
    scripts = files("ray_sentinel.demo") / "scripts"
    train = (scripts / "train.py").read_text()
    if attach:
        head, future, rest = train.partition(FUTURE)
        train = head + future + ATTACH + rest
    (folder / "train.py").write_text(train)
    (folder / "batches.py").write_text((scripts / "batches.py").read_text())
    told = {"rank": plan.rank, "step": plan.step, "how": plan.fault}
    (folder / "plan.json").write_text(json.dumps(told))


class Launcher:
    """An actor on each node that starts this node's ranks and ends them."""

    def __init__(self) -> None:
        self._ranks: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, ranks: Sequence[int], folder: str, port: int) -> dict[int, int]:
        """Start some ranks; returns their pids by rank."""
        for local, rank in enumerate(ranks):
            environment = {
                **os.environ,
                "RANK": str(rank),
                "LOCAL_RANK": str(local),
                "WORLD_SIZE": str(WORLD_SIZE),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "GLOO_SOCKET_IFNAME": "lo",
                "OMP_NUM_THREADS": "1",
                "TORCH_FR_BUFFER_SIZE": "2000",
                "PYTHONUNBUFFERED": "1",
            }
            with open(Path(folder) / f"rank-{rank}.log", "wb") as log:
                self._ranks[rank] = process.spawn(
                    [sys.executable, "train.py"],
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    cwd=folder,
                )
        return {rank: child.pid for rank, child in self._ranks.items()}

    def ended(self) -> dict[int, int]:
        """Exit statuses of those that have ended, by rank."""
        return {r: code for r, child in self._ranks.items() if (code := child.poll()) is not None}

    def end(self) -> None:
        """End what is left, also what is stopped."""
        for child in self._ranks.values():
            if child.poll() is None:
                os.kill(child.pid, signal.SIGCONT)
                process.end(child, grace=0.5)


class Job:
    """The launchers of all nodes as one thing. ``addresses`` are those of the nodes."""

    def __init__(self, ray: Any, addresses: Sequence[str], folder: Path) -> None:
        self._ray = ray
        self._folder = folder
        self._port = free_port()
        kind = ray.remote(Launcher)
        self._launchers = [
            kind.options(num_cpus=0, resources={f"node:{address}": 0.001}).remote()
            for address in addresses
        ]

    @property
    def name(self) -> str:
        """What the sentinel calls the job, which has no other name than its rendezvous."""
        return f"127.0.0.1:{self._port}"

    def start(self) -> dict[int, int]:
        """Start all ranks; returns pids by rank."""
        share = WORLD_SIZE // len(self._launchers)
        refs = [
            launcher.start.remote(
                list(range(i * share, (i + 1) * share)), str(self._folder), self._port
            )
            for i, launcher in enumerate(self._launchers)
        ]
        pids: dict[int, int] = {}
        for started in self._ray.get(refs, timeout=60):
            pids |= started
        return pids

    def ended(self) -> dict[int, int]:
        """Exit statuses by rank."""
        codes: dict[int, int] = {}
        for some in self._ray.get([launcher.ended.remote() for launcher in self._launchers]):
            codes |= some
        return codes

    def end(self) -> None:
        """End all ranks that are left."""
        self._ray.get([launcher.end.remote() for launcher in self._launchers], timeout=30)

    def began(self) -> float | None:
        """When the trouble began (Unix seconds); None before."""
        try:
            return float((self._folder / "began").read_text())
        except (OSError, ValueError):
            return None

    def last_lines(self, rank: int, count: int = 3) -> list[str]:
        """The end of a rank's output."""
        try:
            text = (self._folder / f"rank-{rank}.log").read_text(errors="replace")
        except OSError:
            return []
        return text.splitlines()[-count:]

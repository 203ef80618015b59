"""Real processes that look like ranks, for tests that watch them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from ray_sentinel.model.identity import Node
from ray_sentinel.model.progress import Exit, RankSnapshot
from ray_sentinel.progress.discovery.environment import VARIABLES
from ray_sentinel.progress.watch import NodeWatch
from tests.support.waiting import eventually

PROGRAM = Path(__file__).with_name("rank_program.py")
ROOT = Path(__file__).resolve().parents[2]
DEADLINE = 40.0
"""Seconds that a test waits for what must come, on a busy machine."""


class Ranks:
    """Starts ranks of one job of its own, watches them, and ends them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "records"
        self.job = f"test-{os.getpid()}-{folder.name}"
        self.processes: list[subprocess.Popen[str]] = []
        self.watch = NodeWatch(
            Node(id="node", host="host", address="127.0.0.1"), folders=[self.folder]
        )
        self.exits: list[Exit] = []
        self.snapshots: dict[int, RankSnapshot] = {}

    def start(
        self, fault: str, rank: int = 0, *, seconds: float = 60, at: int = 20
    ) -> subprocess.Popen[str]:
        """Start one; it acts after ``at`` steps of 50 ms."""
        return self.spawn([sys.executable, str(PROGRAM), fault, str(seconds), str(at)], rank)

    def spawn(self, arguments: list[str], rank: int | None) -> subprocess.Popen[str]:
        """Start any program, with a launcher's variables unless ``rank`` is None."""
        environ = {name: value for name, value in os.environ.items() if name not in VARIABLES}
        environ |= {
            "RAY_SENTINEL_JOB": self.job,
            "RAY_SENTINEL_RECORD_DIR": str(self.folder),
            "PYTHONPATH": str(ROOT),
        }
        if rank is not None:
            environ |= {"RANK": str(rank), "WORLD_SIZE": "64", "LOCAL_RANK": str(rank)}
        with open(self.folder.parent / f"stderr-{len(self.processes)}", "wb") as errors:
            process = subprocess.Popen(
                arguments, env=environ, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self.processes.append(process)
        return process

    def poll(self) -> None:
        """Look once; other jobs on the machine are none of ours."""
        ranks, exits = self.watch.poll()
        self.snapshots = {
            item.rank.process.pid: item for item in ranks if item.rank.id.job == self.job
        }
        self.exits += [item for item in exits if item.rank.id.job == self.job]

    def until(self, done: Callable[[], object], what: str, every: float = 0.25) -> None:
        """Look until ``done()``; fails at the deadline."""

        def look() -> object:
            self.poll()
            return done()

        try:
            eventually(look, what, DEADLINE, every)
        except AssertionError as error:
            raise AssertionError(f"{error}; {self.snapshots} {self.exits}") from None

    def of(self, process: subprocess.Popen[str]) -> RankSnapshot | None:
        """The rank as it was last seen."""
        return self.snapshots.get(process.pid)

    def stepping(self, process: subprocess.Popen[str], steps: int = 3) -> bool:
        """Whether it was seen to take so many steps."""
        rank = self.of(process)
        return rank is not None and rank.progress is not None and (rank.progress.step or 0) >= steps

    def close(self) -> None:
        """End all that was started, by pid."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        self.watch.close()

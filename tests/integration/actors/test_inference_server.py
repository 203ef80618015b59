"""An inference engine of two tensor-parallel ranks beside a watched cluster; nobody attaches."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ray_sentinel.model.incident import Incident
from ray_sentinel.model.status import JobStatus
from ray_sentinel.progress.discovery.environment import VARIABLES
from tests.support.ray_cluster import Watched
from tests.support.waiting import eventually
from tests.support.watched_job import culprits

pytestmark = pytest.mark.integration

ENGINE = Path(__file__).parents[2] / "support/stand_in_engine"
START_SECONDS = 120.0
"""Torch is imported in both ranks."""
WELL_SECONDS = 20.0
"""Twice the silence after which a job that trains is suspected."""


class Server:
    """A front end, its engine's processes, and a router."""

    def __init__(self, watched: Watched, folder: Path, mode: str) -> None:
        self.watched, self.folder = watched, folder
        folder.mkdir()
        kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
        self.environ = {
            **kept,
            "PYTHONPATH": str(ENGINE),
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
        }
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.front = self._start("sglang.launch_server", str(folder), mode, "--port", str(port))
        self.router = self._start("sglang_router.launch_router")

    def _start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", *words],
            env=self.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def generate(self, tokens: int, stuck: int = -1) -> None:
        """Send a request, which rank ``stuck`` never finishes."""
        assert self.front.stdin is not None
        self.front.stdin.write(json.dumps([tokens, stuck]) + "\n")
        self.front.stdin.flush()

    def lose(self) -> None:
        """Send a request that the front end never hands on."""
        self.generate(0)

    def answer(self) -> str:
        """Wait for the answer to the oldest unanswered request."""
        assert self.front.stdout is not None
        return self.front.stdout.readline()

    def serve(self, tokens: int) -> None:
        """Send a request, and wait for its answer."""
        self.generate(tokens)
        assert self.answer() == "done\n"

    @property
    def pids(self) -> dict[int, int]:
        """The pid of each rank, by its number."""
        return {rank: int((self.folder / f"rank-{rank}").read_text()) for rank in range(2)}

    def job(self) -> JobStatus | None:
        """The engine as the sentinel sees it."""
        name = f"sglang-{self.front.pid}"
        return next((job for job in self.watched.status().jobs if job.job == name), None)

    def incidents(self) -> list[Incident]:
        found = self.watched.ask("incidents", tuple[Incident, ...])
        return [incident for incident in found if incident.job == f"sglang-{self.front.pid}"]

    def verdict(self, seconds: float = 45.0) -> Incident:
        """Wait for the verdict of the only incident."""

        def named() -> Incident | None:
            found = self.incidents()
            assert len(found) <= 1, found
            return found[0] if found and found[0].verdict is not None else None

        return eventually(named, "a verdict", seconds)

    def until_serving(self) -> None:
        """Wait until it has answered, and is seen as one job of two ranks that move."""
        self.serve(10)

        def seen() -> bool:
            self.serve(200)
            job = self.job()
            return job is not None and len(job.ranks) == 2 and job.phase == "train"

        eventually(seen, "the engine is seen at work", START_SECONDS)

    def close(self) -> None:
        """End all of it, also what is stopped."""
        for file in self.folder.glob("*"):
            if file.is_file():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(file.read_text()), signal.SIGKILL)
        for process in (self.front, self.router):
            process.kill()
            process.communicate()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


@pytest.fixture
def watched(watched_by_files: Watched) -> Watched:
    return watched_by_files


def test_the_engines_processes_are_ranks_and_a_stopped_one_is_named(
    watched: Watched, tmp_path: Path
) -> None:
    with Server(watched, tmp_path / "server", "rests") as server:
        server.until_serving()
        job = server.job()
        assert job is not None
        assert {rank.rank: rank.pid for rank in job.ranks} == server.pids
        assert (job.world_size, {rank.role for rank in job.ranks}) == (2, {"engine"})
        everyone = {rank.pid for other in watched.status().jobs for rank in other.ranks}
        helper = int((server.folder / "detokenizer").read_text())
        assert not everyone & {server.front.pid, server.router.pid, helper}
        os.kill(server.pids[1], signal.SIGSTOP)
        incident = server.verdict()
        assert incident.kind == "rank-stopped"
        assert culprits(incident) == [(1, server.pids[1])]
        os.kill(server.pids[1], signal.SIGCONT)

        def over() -> bool:
            server.serve(200)
            return server.incidents()[0].state == "resolved"

        eventually(over, "it is over once it serves again")


def test_an_engine_that_rests_is_well_until_requests_wait_in_vain(
    watched: Watched, tmp_path: Path
) -> None:
    with Server(watched, tmp_path / "server", "rests") as server:
        server.until_serving()
        begun = watched.status().time

        def still_well() -> bool:
            status = watched.status()
            job = server.job()
            assert job is not None
            assert (job.state, server.incidents()) == ("healthy", []), status.verdict
            return status.time > begun + WELL_SECONDS

        eventually(still_well, "time passes", 2 * WELL_SECONDS, every=1.0)
        server.lose()
        server.lose()
        incident = server.verdict()
        assert (incident.kind, incident.rule, culprits(incident)) == ("stall", "stall.requests", [])
        assert "0 running, 2 waiting requests" in incident.summary
        job = server.job()
        assert job is not None
        assert (job.state, job.requests) == ("stalled", "0 running, 2 waiting requests")
        server.serve(10)

        def over() -> bool:
            server.serve(10)
            return server.incidents()[0].state == "resolved"

        eventually(over, "it is over once something gets on")


def test_a_rank_that_does_not_come_out_of_its_batch(watched: Watched, tmp_path: Path) -> None:
    with Server(watched, tmp_path / "server", "polls") as server:
        server.until_serving()
        server.generate(10, stuck=1)
        incident = server.verdict()
        assert culprits(incident) == [(1, server.pids[1])]
        assert incident.kind == "host-stuck"

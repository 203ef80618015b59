"""Real deaths of real Ray actors: the driver's output and the session's own folder are triaged."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_sentinel.logs.catalogue import load_catalogue
from ray_sentinel.logs.find import find_logs
from ray_sentinel.logs.select import LineFilter, choose, describe
from ray_sentinel.logs.triage import triage_path

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

DEADLINE = 150.0
DRIVER = """
import os, signal, sys, time
import ray

ray.init(num_cpus=2, include_dashboard=False, _temp_dir=sys.argv[1])

@ray.remote
class TrainerActor:
    def __init__(self, rank):
        self.rank = rank
    def pid(self):
        return os.getpid()
    def step(self, number):
        print(f"step: {number} loss: 1.5 time: 0.01s", flush=True)
        if self.rank == 1 and number == 5:
            fault()
        return number

actors = [TrainerActor.remote(rank) for rank in range(2)]
open(sys.argv[2], "w").write(" ".join(str(ray.get(a.pid.remote())) for a in actors))
for number in range(8):
    ray.get([a.step.remote(number) for a in actors])
"""


@pytest.fixture
def temp() -> Iterator[Path]:
    """Ray's temp dir: its sockets lie below it, and their paths must stay short."""
    place = Path(tempfile.mkdtemp(prefix="rst_", dir="/tmp"))
    yield place
    shutil.rmtree(place, ignore_errors=True)


def run_driver(tmp_path: Path, temp: Path, fault: str) -> tuple[Path, list[int]]:
    """(the driver's output, the actors' pids)."""
    script = tmp_path / "driver.py"
    script.write_text(f"def fault():\n{textwrap.indent(fault, '    ')}\n{DRIVER}")
    log, pids = tmp_path / "driver.log", tmp_path / "pids"
    with log.open("wb") as out:
        subprocess.run(
            [sys.executable, str(script), str(temp), str(pids)],
            stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=DEADLINE,
            check=False,
        )  # fmt: skip
    return log, [int(pid) for pid in pids.read_text().split()]


def test_an_actor_that_is_killed(tmp_path: Path, temp: Path) -> None:
    log, pids = run_driver(tmp_path, temp, "os.kill(os.getpid(), signal.SIGKILL)")
    answer = triage_path(log, load_catalogue())
    assert answer.kind == "actor-fail"
    assert answer.culprits[0].pid == pids[1]
    assert answer.culprits[0].actor == "TrainerActor"


def test_an_exception_in_an_actor(tmp_path: Path, temp: Path) -> None:
    log, pids = run_driver(tmp_path, temp, 'raise ValueError("no such shard")')
    answer = triage_path(log, load_catalogue())
    assert answer.kind == "python-exception"
    assert answer.culprits[0].pid == pids[1]
    assert answer.exception is not None
    assert (answer.exception.kind, answer.exception.message) == ("ValueError", "no such shard")
    files = choose(describe(find_logs(temp)), LineFilter(pid=pids[1], kind="worker"))
    assert len(files) >= 1
    assert {item.file.origin.actor for item in files} == {"TrainerActor"}


def test_the_sessions_folder_alone(tmp_path: Path, temp: Path) -> None:
    _, pids = run_driver(tmp_path, temp, "os._exit(3)")
    answer = triage_path(temp, load_catalogue())
    assert answer.files > 3
    assert answer.progress.last_step in (4, 5, 6)
    assert answer.kind == "actor-fail"
    assert answer.culprits[0].pid == pids[1]

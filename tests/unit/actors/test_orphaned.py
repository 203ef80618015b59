"""A process that ends with its raylet; the raylet here is a shell of that name."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ray_sentinel.actors.raylets import end_with_raylet
from tests.support.living import alive
from tests.support.waiting import eventually

ACTOR = """
import os, sys, time
from pathlib import Path
from ray_sentinel import process
from ray_sentinel.actors.raylets import end_with_raylet

child = process.spawn(["sleep", "120"])
folder = Path(sys.argv[1])

def close():
    (folder / "closed").touch()
    {closing}

assert end_with_raylet(close, 0.5)
(folder / "new").write_text(f"{{os.getpid()}} {{child.pid}}")
(folder / "new").rename(folder / "pids")
time.sleep(120)
"""


@pytest.mark.parametrize("closing", ["pass", "raise OSError", "time.sleep(120)"])
def test_it_ends_with_all_that_it_started(tmp_path: Path, closing: str) -> None:
    shell = shutil.which("sh")
    assert shell
    (tmp_path / "raylet").symlink_to(shell)
    (tmp_path / "actor.py").write_text(ACTOR.format(closing=closing))
    actor = f"{sys.executable} {tmp_path}/actor.py {tmp_path} & wait"
    raylet = subprocess.Popen([tmp_path / "raylet", "-c", actor], start_new_session=True)
    pids: list[int] = []
    try:
        eventually((tmp_path / "pids").exists, "the actor runs", 30.0)
        pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
        assert all(map(alive, pids))
        assert not (tmp_path / "closed").exists()
        # Nobody reaps it: a container's first process often does not.
        raylet.kill()
        eventually(lambda: not any(map(alive, pids)), "both have ended", 15.0)
        assert (tmp_path / "closed").exists()
    finally:
        raylet.kill()
        raylet.wait()
        for pid in filter(alive, pids):
            os.kill(pid, 9)


def test_a_process_of_no_raylet_goes_on() -> None:
    assert end_with_raylet(lambda: pytest.fail("it was closed")) is None

"""Programs that we start: in time, bounded, and never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ray_sentinel import process
from ray_sentinel.errors import MissingPartError
from tests.support.living import alive

pytestmark = pytest.mark.integration

PARENT = """
import sys, time
from ray_sentinel import process
from ray_sentinel.process import spawning
if sys.argv[1] == "python":
    process._setpriv = lambda: None
child = process.spawn([sys.executable, "-c", "import time; print(1, flush=True); time.sleep(600)"])
child.stdout.read(1)
print(child.pid, flush=True)
time.sleep(600)
"""


def gone(pid: int, seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(pid)


def test_output_status_and_input_come_through() -> None:
    done = process.run(
        ["sh", "-c", "cat; echo oops >&2; exit 3"], deadline=10, input=b"x" * 300_000
    )
    assert (len(done.stdout), done.stderr, done.returncode) == (300_000, b"oops\n", 3)
    assert not done.ok
    assert done.explain() == "sh ended with status 3: oops"


def test_a_program_that_is_late_is_ended_with_all_its_children() -> None:
    done = process.run(["sh", "-c", "sleep 600 & echo $!; sleep 600"], deadline=3.0)
    assert done.timed_out
    assert "was ended after" in done.explain()
    assert gone(int(done.stdout))


def test_what_a_program_leaves_behind_goes_with_it() -> None:
    done = process.run(["sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!"], deadline=10)
    assert done.ok
    assert gone(int(done.stdout))


def test_a_pipe_that_is_held_open_by_a_left_over_child_is_not_waited_for() -> None:
    done = process.run(["sh", "-c", "sleep 600 & echo $!"], deadline=60)
    assert done.ok
    assert done.seconds < 30
    assert gone(int(done.stdout))


def test_output_is_bounded_and_the_program_goes_on() -> None:
    done = process.run(["sh", "-c", "head -c 1000000 /dev/zero; echo end >&2"], deadline=10,
                       max_output=1000)  # fmt: skip
    assert (len(done.stdout), done.truncated, done.stderr) == (1000, True, b"end\n")


def test_a_missing_program_is_named() -> None:
    with pytest.raises(MissingPartError, match="no-such-program"):
        process.run(["no-such-program"], deadline=1)


@pytest.mark.parametrize("launcher", ["setpriv", "python"])
def test_a_child_dies_with_its_parent_even_by_sigkill(launcher: str) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, launcher], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert alive(child)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait(timeout=10)
    assert gone(child)


def test_a_child_whose_parent_ended_before_it_could_begin_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert process.dying_with_us(["true"])[0].endswith("setpriv"), "or nothing is tried here"
    mark = str(tmp_path / "mark")
    assert subprocess.run(process.dying_with_us(["touch", mark])).returncode == 0
    assert Path(mark).exists()
    Path(mark).unlink()
    # As it looks to a child that was adopted by another process in the meantime.
    monkeypatch.setattr(os, "getpid", lambda: 1 << 22)
    assert subprocess.run(process.dying_with_us(["touch", mark])).returncode != 0
    assert not Path(mark).exists()


def test_a_child_that_ignores_sigterm_is_killed() -> None:
    child = process.spawn(["sh", "-c", "trap '' TERM; echo ready; sleep 600"])
    assert child.stdout is not None
    child.stdout.read(5)
    assert process.end(child, grace=0.2)
    assert gone(child.pid)

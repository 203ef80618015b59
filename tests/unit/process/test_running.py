"""Programs that are run to their end."""

from __future__ import annotations

import errno
import os
from typing import NoReturn

import pytest

from ray_sentinel import process
from ray_sentinel.process import running, spawning


def test_a_program_whose_output_cannot_be_read_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> NoReturn:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(running.selectors, "DefaultSelector", refuse)
    started: list[int] = []
    with pytest.raises(OSError, match="Too many open files"):
        process.run(["sleep", "600"], deadline=60, on_start=started.append)
    (pid,) = started
    assert pid not in spawning._children
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_program_that_is_late_may_end_by_itself() -> None:
    polite = "trap 'echo bye; exit 3' TERM; echo began; while :; do sleep 0.05; done"
    done = process.run(["sh", "-c", polite], deadline=0.5, grace=20)
    assert (done.timed_out, done.returncode, done.stdout) == (True, 3, b"began\nbye\n")
    assert done.seconds < 15


def test_a_program_that_does_not_is_killed() -> None:
    stubborn = "trap '' TERM; echo began; while :; do sleep 0.05; done"
    done = process.run(["sh", "-c", stubborn], deadline=0.5, grace=0.3)
    assert (done.timed_out, done.returncode, done.stdout) == (True, -9, b"began\n")


def test_a_program_that_crashes_leaves_no_core_dump() -> None:
    done = process.run(["sh", "-c", "ulimit -c; ulimit -Hc; kill -SEGV $$"], deadline=20)
    assert (done.returncode, done.stdout) == (-11, b"0\n0\n")

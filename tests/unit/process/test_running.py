"""Programs that are run to their end."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections.abc import Iterator
from typing import NoReturn

import pytest

from ray_sentinel import process, signals
from ray_sentinel.process import running, spawning


def test_a_program_whose_output_cannot_be_read_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> NoReturn:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(running.selectors, "DefaultSelector", refuse)
    started: list[int] = []
    with pytest.raises(OSError, match="Too many open files"):
        process.run(["sleep", "600"], deadline=60, on_start=started.append)
    (pid,) = started
    ended: list[int] = []
    monkeypatch.setattr(signals, "send_group", lambda child, _number: ended.append(child.pid))
    spawning.end_all()
    assert pid not in ended, "its number may be another's by then"
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_program_that_is_late_may_end_by_itself() -> None:
    polite = "trap 'echo bye; exit 3' TERM; echo began; while :; do sleep 0.05; done"
    done = process.run(["sh", "-c", polite], deadline=0.5, grace=20)
    assert (done.timed_out, done.returncode, done.stdout) == (True, 3, b"began\nbye\n")
    assert done.seconds < 15


def test_a_program_is_asked_to_end_once_it_has_said_that_it_may_be() -> None:
    fragile = (
        "trap 'echo broken; exit 4' TERM; sleep 1; "
        "trap 'echo bye; exit 3' TERM; echo safe; while :; do sleep 0.05; done"
    )
    run = ["sh", "-c", fragile]
    done = process.run(run, deadline=0.2, grace=20, ends_after=b"safe")
    assert (done.timed_out, done.returncode, done.stdout) == (True, 3, b"safe\nbye\n")
    done = process.run(run, deadline=0.2, grace=0.2, ends_after=b"safe")
    assert (done.timed_out, done.returncode, done.stdout) == (True, -9, b"")


def test_a_program_that_does_not_is_killed() -> None:
    stubborn = "trap '' TERM; echo began; while :; do sleep 0.05; done"
    done = process.run(["sh", "-c", stubborn], deadline=0.5, grace=0.3)
    assert (done.timed_out, done.returncode, done.stdout) == (True, -9, b"began\n")


def test_a_program_that_crashes_leaves_no_core_dump() -> None:
    done = process.run(["sh", "-c", "ulimit -c; ulimit -Hc; kill -SEGV $$"], deadline=20)
    assert (done.returncode, done.stdout) == (-11, b"0\n0\n")


COUNTS = "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; echo counted"


@pytest.fixture
def crowded_cpu() -> Iterator[list[str]]:
    """What puts a program on a CPU that six others want, too."""
    pin = ["taskset", "-c", str(max(os.sched_getaffinity(0)))]
    with contextlib.ExitStack() as undo:
        for _ in range(6):
            hog = process.spawn([*pin, "sh", "-c", "while :; do :; done"],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
            undo.callback(process.end, hog)
        yield [*pin, "nice", "-n", "5"]


def test_what_a_program_waits_for_a_cpu_is_not_held_against_it(crowded_cpu: list[str]) -> None:
    work = [*crowded_cpu, "sh", "-c", COUNTS]
    late = process.run(work, deadline=0.7)
    assert (late.timed_out, late.stdout) == (True, b"")
    done = process.run(work, deadline=0.7, crowded=100)
    assert (done.timed_out, done.stdout) == (False, b"counted\n")
    assert done.seconds > 0.7
    hung = process.run([*crowded_cpu, "sleep", "600"], deadline=0.7, crowded=100)
    assert hung.timed_out
    assert hung.seconds < 30
    capped = process.run(work, deadline=0.5, crowded=0.2)
    assert capped.timed_out

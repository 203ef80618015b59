"""Programs that are run to their end."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import subprocess
import sys
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


# A program as a debugger is: an interrupt breaks off its commands, and does harm before and after.
# Where it waits in vain for harm, it does so for longer than from one interrupt to the next.
DEBUGGER = """
import signal, sys
INTERRUPT, NEVER = {signal.SIGINT}, {signal.SIGUSR1}
signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPT | NEVER)
def say(text):
    print(text, flush=True)
def hold():
    if signal.sigtimedwait(INTERRUPT, 1.0):
        say("harm")
if sys.argv[1] == "never attaches":
    signal.sigwait(NEVER)
hold()
say("attached")
for command in range(2):
    say("x" * int(sys.argv[2]))
    signal.sigwait(INTERRUPT)
    say("broken off")
while INTERRUPT & signal.sigpending():
    signal.sigwait(INTERRUPT)  # between two commands it breaks off nothing
say("detaching")
if sys.argv[1] == "never detaches":
    signal.sigwait(NEVER)
hold()
sys.exit(3)
"""


def late(how: str, seconds: float, size: int = 1) -> process.Completed:
    """Such a program whose deadline is over when it begins."""
    return process.run(
        [sys.executable, "-c", DEBUGGER, how, str(size)],
        deadline=0.0,
        max_output=1000,
        interrupts=process.Interrupts(after=b"attached", until=b"detaching", seconds=seconds),
    )


@pytest.mark.parametrize("size", [1, 5000], ids=["all kept", "most dropped"])
def test_a_program_that_is_late_breaks_off_its_commands_and_ends_by_itself(size: int) -> None:
    done = late("ends", 20, size)
    assert (done.timed_out, done.returncode, done.truncated) == (True, 3, size > 1000)
    assert b"harm" not in done.stdout
    if not done.truncated:
        told = b"attached\nx\nbroken off\nx\nbroken off\ndetaching\n"
        assert done.stdout == told
    assert done.seconds < 15


def test_a_program_that_does_not_end_is_killed() -> None:
    done = late("never attaches", 0.2)
    assert (done.timed_out, done.returncode, done.stdout) == (True, -9, b"")
    done = late("never detaches", 5)
    assert (done.timed_out, done.returncode) == (True, -9)
    assert done.stdout.endswith(b"detaching\n")


def test_a_program_that_crashes_leaves_no_core_dump() -> None:
    done = process.run(["sh", "-c", "ulimit -c; ulimit -Hc; kill -SEGV $$"], deadline=20)
    assert (done.returncode, done.stdout) == (-11, b"0\n0\n")


COUNTS = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo counted"


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
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    assert process.run(work, deadline=60).stdout == b"counted\n"
    alone = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    late = process.run(work, deadline=1.7 * alone)
    assert (late.timed_out, late.stdout) == (True, b"")
    done = process.run(work, deadline=1.7 * alone, crowded=100)
    assert (done.timed_out, done.stdout) == (False, b"counted\n")
    assert done.seconds > 1.7 * alone
    hung = process.run([*crowded_cpu, "sleep", "600"], deadline=0.7, crowded=100)
    assert hung.timed_out
    assert hung.seconds < 30
    capped = process.run(work, deadline=alone, crowded=0.4 * alone)
    assert capped.timed_out

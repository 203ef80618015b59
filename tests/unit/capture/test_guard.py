"""Whatever happens to a guard or to its tracer, the process that is looked at runs on."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import NoReturn

import pytest

from ray_sentinel.capture import guard
from ray_sentinel.capture.guarded import Watched, readable
from ray_sentinel.capture.states import read_state
from ray_sentinel.capture.tracer import Traced
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.progress.proc.proc_stat import read_stat
from tests.support.parts import lacking
from tests.support.waiting import eventually

BEYOND_SELECT = 1500
"""``select(2)`` takes no descriptor from 1024 on."""


class Intrusive:
    """A tool that must not be run."""

    name, prefix, intrusive = "gdb", "gdb", True

    def available(self) -> str:
        return ""

    def trace(self, process: ProcessId, deadline: float) -> Traced:
        raise AssertionError("it was run unguarded")


def test_without_a_descriptor_nothing_is_attached(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, start: int) -> NoReturn:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(guard, "open_pidfd", refuse)
    result = guard.trace(Intrusive(), ProcessId("h", os.getpid()), 1.0)
    assert result.skipped
    assert "Too many open files" in result.problem


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard <= BEYOND_SELECT:
        lacking(f"this machine allows {hard} descriptors: raise the hard limit (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, BEYOND_SELECT + 1), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_process_with_very_many_files_can_watch_too(many_descriptors: None) -> None:
    reading, writing = os.pipe()
    high = fcntl.fcntl(reading, fcntl.F_DUPFD_CLOEXEC, BEYOND_SELECT)
    try:
        assert not readable(high, 0.0)
        os.write(writing, b"r")
        assert readable(high, 10.0)
    finally:
        for handle in (reading, writing, high):
            os.close(handle)


@pytest.fixture
def sleeper() -> Iterator[ProcessId]:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        eventually(lambda: read_state(child.pid) == "S", "it sleeps", every=0.02)
        stat = read_stat(child.pid)
        assert stat is not None
        yield ProcessId("h", child.pid, stat.start)
    finally:
        child.kill()
        child.wait(timeout=10)


def stop(process: ProcessId) -> None:
    os.kill(process.pid, signal.SIGSTOP)
    eventually(lambda: read_state(process.pid) == "T", "it is stopped", every=0.02)


class Faulty(Intrusive):
    """A tool whose reader fails at what it wrote, while the process is stopped."""

    def trace(self, process: ProcessId, deadline: float) -> Traced:
        stop(process)
        raise ValueError("not what was expected")


def test_a_process_that_a_faulty_tracer_left_stopped_is_continued(sleeper: ProcessId) -> None:
    with pytest.raises(ValueError, match="not what was expected"):
        guard.trace(Faulty(), sleeper, 5.0)
    assert read_state(sleeper.pid) == "S"


def test_after_an_error_the_watchman_does_not_hear_that_all_is_well(sleeper: ProcessId) -> None:
    def break_off() -> NoReturn:
        with Watched(sleeper.pid, sleeper.start) as post:
            assert post.ready
            stop(sleeper)
            raise RuntimeError("broken off")

    with pytest.raises(RuntimeError, match="broken off"):
        break_off()
    assert read_state(sleeper.pid) == "S"

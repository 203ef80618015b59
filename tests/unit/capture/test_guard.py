"""A guard that lacks descriptors says so; it neither raises nor lets the tool run."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
from collections.abc import Iterator
from typing import NoReturn

import pytest

from ray_sentinel.capture import guard
from ray_sentinel.capture.guarded import readable
from ray_sentinel.capture.tracer import Traced
from ray_sentinel.model.identity import ProcessId
from tests.support.parts import lacking

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

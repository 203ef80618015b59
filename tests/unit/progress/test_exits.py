"""Exits as the kernel tells them, where descriptors are short or the clock is set back."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import threading
from pathlib import Path

import pytest

from ray_sentinel.progress.exits import ExitWatch
from ray_sentinel.progress.proc import pidfd

ONE, TWO = (101, 1010), (102, 1020)
REAL_EPOLL = select.epoll


class Descriptors:
    """Stands for ``open_pidfd``: raises as told, else gives what tells of an exit at once."""

    def __init__(self) -> None:
        self.error: int | None = None
        self.asked: list[int] = []

    def open(self, pid: int, start: int, proc: Path) -> int:
        self.asked.append(pid)
        if self.error is not None:
            raise OSError(self.error, os.strerror(self.error))
        return os.eventfd(1)


@pytest.fixture
def descriptors(monkeypatch: pytest.MonkeyPatch) -> Descriptors:
    made = Descriptors()
    monkeypatch.setattr(pidfd, "open_pidfd", made.open)
    return made


def test_a_moment_without_descriptors_is_not_for_ever(
    descriptors: Descriptors, caplog: pytest.LogCaptureFixture
) -> None:
    noticed = threading.Event()
    exits = ExitWatch(on_exit=noticed.set)
    descriptors.error = errno.EMFILE
    for _ in range(3):
        exits.watch(ONE)
    assert caplog.text.count("Too many open files") == 1
    descriptors.error = None
    exits.watch(ONE)
    assert noticed.wait(10)
    assert [ended.key for ended in exits.drain()] == [ONE]
    exits.close()


def waiting_descriptors() -> set[tuple[str, str]]:
    """The open ones of the kinds that are waited with."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.add((entry.name, os.readlink(entry)))
    return {(name, kind) for name, kind in found if kind.startswith("anon_inode:")}


@pytest.mark.parametrize("what", ["epoll", "eventfd", "thread"])
def test_where_nothing_can_wait_for_a_moment_the_exit_is_told_later(
    descriptors: Descriptors, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def no_thread(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    noticed = threading.Event()
    exits = ExitWatch(on_exit=noticed.set)
    before = waiting_descriptors()
    with monkeypatch.context() as short:
        if what == "epoll":
            short.setattr(select, "epoll", full)
        elif what == "eventfd":
            ready = os.eventfd(1)
            short.setattr(pidfd, "open_pidfd", lambda *_: os.dup(ready))
            short.setattr(os, "eventfd", full)
        else:
            short.setattr(threading.Thread, "start", no_thread)
        exits.watch(ONE)
        if what == "eventfd":
            os.close(ready)
    assert waiting_descriptors() <= before, "nothing is left open"
    exits.watch(ONE)
    assert noticed.wait(10)
    assert [ended.key for ended in exits.drain()] == [ONE]
    exits.close()
    assert waiting_descriptors() <= before


class FullEpoll:
    """A real one, into which nothing goes while there is no ``room``: a user's watches are counted
    (/proc/sys/fs/epoll/max_user_watches)."""

    room = True

    def __init__(self) -> None:
        self.inner = REAL_EPOLL()
        self.poll, self.close = self.inner.poll, self.inner.close
        self.unregister = self.inner.unregister

    def register(self, handle: int, events: int) -> None:
        if not FullEpoll.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.inner.register(handle, events)


def test_where_one_more_cannot_be_waited_for_its_exit_is_told_later(
    descriptors: Descriptors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(select, "epoll", FullEpoll)
    noticed = threading.Event()
    exits = ExitWatch(on_exit=noticed.set)
    exits.watch(TWO)
    assert noticed.wait(10)
    assert [ended.key for ended in exits.drain()] == [TWO]
    noticed.clear()
    before = waiting_descriptors()
    monkeypatch.setattr(FullEpoll, "room", False)
    exits.watch(ONE)
    assert waiting_descriptors() <= before, "nothing is left open"
    assert exits.drain() == ()
    monkeypatch.setattr(FullEpoll, "room", True)
    exits.watch(ONE)
    assert noticed.wait(10)
    assert [ended.key for ended in exits.drain()] == [ONE]
    exits.close()


def test_one_that_was_put_off_and_went_is_told_once(descriptors: Descriptors) -> None:
    exits = ExitWatch()
    descriptors.error = errno.ENFILE
    exits.watch(ONE)
    exits.missing([ONE])
    assert [ended.key for ended in exits.drain()] == [ONE]
    exits.missing([ONE])
    assert exits.drain() == ()
    exits.close()


def test_a_kernel_without_descriptors_is_asked_once(descriptors: Descriptors) -> None:
    exits = ExitWatch()
    descriptors.error = errno.ENOSYS
    for key in (ONE, TWO, ONE):
        exits.watch(key)
    assert descriptors.asked == [ONE[0]]
    exits.close()


def test_a_clock_that_was_set_back_holds_no_exit(
    descriptors: Descriptors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pidfd, "exit_status", lambda handle: None)
    monkeypatch.setattr(pidfd, "zombie_status", lambda *_: None)
    monkeypatch.setattr(pidfd, "is_zombie", lambda *_: True)
    now = [1_700_000_000.0]
    noticed = threading.Event()
    exits = ExitWatch(now=lambda: now[0], on_exit=noticed.set)
    exits.watch(ONE)
    assert noticed.wait(10)
    assert exits.drain() == (), "its parent may reap it within a second"
    now[0] -= 3600.0
    assert [ended.key for ended in exits.drain()] == [ONE]
    exits.close()

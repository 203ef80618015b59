"""The alarm that dumps the stacks of a rank that nobody may trace."""

import faulthandler
import os
import threading

import pytest

from ray_sentinel.progress.rank.watchdog import Watchdog


@pytest.fixture
def folder(tmp_path):
    handle = os.open(tmp_path, os.O_RDONLY)
    yield handle
    faulthandler.cancel_dump_traceback_later()
    os.close(handle)


def test_put_off_it_cuts_away_what_an_alarm_left(folder, tmp_path):
    watchdog = Watchdog(folder, "x.txt", delay=1000)
    (tmp_path / "x.txt").write_bytes(b"most recent call first")
    watchdog.arm()
    assert (tmp_path / "x.txt").read_bytes() == b""
    watchdog.close()
    watchdog.arm()
    watchdog.close()


def test_nobody_sets_the_alarm_around_a_fork(folder, monkeypatch):
    watchdog = Watchdog(folder, "x.txt", delay=1000)
    calls = []
    monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda *_, **__: calls.append(1))
    watchdog.pause()
    watchdog.arm()
    assert calls == []
    watchdog.resume()
    assert calls == [1]
    watchdog.arm()
    assert calls == [1, 1]
    watchdog.close()


def test_a_fork_where_no_thread_can_be_started_does_not_stop_the_next(folder, monkeypatch):
    watchdog = Watchdog(folder, "x.txt", delay=1000)

    def refused(*_, **__):
        raise RuntimeError("unable to start watchdog thread")

    monkeypatch.setattr(faulthandler, "dump_traceback_later", refused)
    watchdog.pause()
    watchdog.resume()
    next_fork = threading.Thread(target=watchdog.pause, daemon=True)
    next_fork.start()
    next_fork.join(10)
    assert not next_fork.is_alive()
    watchdog.resume()
    monkeypatch.undo()
    watchdog.close()


def test_the_file_is_private(folder, tmp_path):
    Watchdog(folder, "x.txt", delay=1000).close()
    assert (tmp_path / "x.txt").stat().st_mode & 0o777 == 0o600

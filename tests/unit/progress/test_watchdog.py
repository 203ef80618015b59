import faulthandler
import os
import time

import pytest

from ray_sentinel.progress.watchdog import Watchdog


@pytest.fixture
def folder(tmp_path):
    handle = os.open(tmp_path, os.O_RDONLY)
    yield handle
    faulthandler.cancel_dump_traceback_later()
    os.close(handle)


def test_left_alone_it_leaves_stacks_and_put_off_it_cuts_them_away(folder, tmp_path):
    watchdog = Watchdog(folder, "x.txt", delay=0.01)
    deadline = time.monotonic() + 20
    while b"most recent call first" not in (tmp_path / "x.txt").read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    watchdog._delay = 1000
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


def test_the_file_is_private(folder, tmp_path):
    Watchdog(folder, "x.txt", delay=1000).close()
    assert (tmp_path / "x.txt").stat().st_mode & 0o777 == 0o600

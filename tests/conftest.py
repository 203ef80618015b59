"""For all tests."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support import apart, lost_workers, processor_time, streams
from tests.support.lasting import Lasting

# How long an example takes is the machine's matter: one that is busy must not fail it.
settings.register_profile("any-machine", deadline=None)
settings.load_profile("any-machine")
# Else the workers of Ray, and so the ranks, have a niceness of 15: another stream's tests would
# leave them a thirtieth of a core.
os.environ.setdefault("RAY_worker_niceness", "0")
# Else each node starts as many workers as it has CPUs before anybody asks for one, and few of them
# are ever used: what has a runtime environment, as all of ours has, gets workers of its own.
os.environ.setdefault("RAY_prestart_worker_first_driver", "0")
# Else Ray's agent on each node opens the event file of every process that ever was there each two
# seconds, for a dashboard that is not there, and looks at all processes each five.
os.environ.setdefault("SCAN_EVENT_DIR_INTERVAL_SECONDS", "60")
os.environ.setdefault("REPORTER_UPDATE_INTERVAL_MS", "60000")
# Else each raylet reads what memory is left four times a second.
os.environ.setdefault("RAY_memory_monitor_refresh_ms", "5000")


def pytest_configure(config: pytest.Config) -> None:
    """Whoever starts the tests in the background has SIGINT ignored, by them and by all that they
    start; tests of Ctrl-C, and of ending the tests by it, need the usual."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.option.dist != "no" and config.option.tx:
        config.pluginmanager.register(streams.Streams(config))
        config.pluginmanager.register(processor_time.Summary())
        config.pluginmanager.register(lost_workers.Lost())
    elif hasattr(config, "workerinput"):
        config.pluginmanager.register(lost_workers.Worker(config.workerinput[lost_workers.FILE]))
        if file := os.environ.get(apart.SPENT):
            config.pluginmanager.register(processor_time.Worker(Path(file)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """All that is collected stays: no search for garbage has to go through it, now or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


FILE = pytest.StashKey[Path]()
"""The file whose tests run now."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A file begins: what others shared ends, unless this one shares it, too. No fixture could do
    that early enough, because those of the whole session come first: a cluster that is started
    while another is there lies in its folder, and ends with it."""
    if item.config.stash.get(FILE, None) != item.path:
        item.config.stash[FILE] = item.path
        Lasting.end_all_but(getattr(item, "fixturenames", ()))


def pytest_xdist_auto_num_workers() -> int:
    """For ``pytest -n auto``."""
    return streams.workers()

"""For all tests."""

from __future__ import annotations

import signal

import pytest

from tests.support.streams import Streams


def pytest_configure(config: pytest.Config) -> None:
    """Whoever starts the tests in the background has SIGINT ignored, by them and by all that they
    start; tests of Ctrl-C, and of ending the tests by it, need the usual."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.option.dist != "no" and config.option.tx:
        config.pluginmanager.register(Streams(config))

"""Closing a command that serves: tidily, and at the first signal."""

from __future__ import annotations

import os
import signal

import pytest

from ray_sentinel.cli.prometheus.closing import SIGNALS, until_closed


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_leaves_the_block_and_what_is_in_it_is_undone(number: signal.Signals) -> None:
    before = {one: signal.getsignal(one) for one in SIGNALS}
    undone = []
    with until_closed():
        try:
            os.kill(os.getpid(), number)
            signal.pause()
            raise AssertionError("not reached")
        finally:
            # A second one while things are put away does not hurry.
            os.kill(os.getpid(), number)
            undone.append(True)
    assert undone
    assert {one: signal.getsignal(one) for one in SIGNALS} == before


def test_an_error_comes_through() -> None:
    before = {one: signal.getsignal(one) for one in SIGNALS}
    with pytest.raises(ValueError, match="wrong"), until_closed():
        raise ValueError("wrong")
    assert {one: signal.getsignal(one) for one in SIGNALS} == before

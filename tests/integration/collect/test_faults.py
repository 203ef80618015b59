"""Collectors that raise, die or end in the middle."""

from __future__ import annotations

import os
import signal

import pytest

from tests.support.collecting import GOOD, CollectingNode, still_good
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("good_one_beside_it")]


def test_raises_at_import(node: CollectingNode) -> None:
    node.write("bad.py", "class B(Collector):\n    name = 'bad'\nraise RuntimeError('at import')")
    node.start()
    status = node.until("bad", lambda status: status.state == "quarantined")
    assert status.success is False
    assert "RuntimeError: at import (bad.py:" in status.message
    still_good(node)


def test_raises_while_collecting(node: CollectingNode) -> None:
    node.write(
        "bad.py",
        """
        class B(Collector):
            name = "bad"
            interval = 0.2
            def collect(self):
                raise ValueError("no such thing")
        """,
    )
    node.start()
    status = node.until("bad", lambda status: status.success is False)
    assert status.state == "running"
    assert "ValueError: no such thing (bad.py:" in status.message
    assert "Traceback" in eventually(lambda: node.log("bad"), "the log")
    still_good(node)


def test_dies_and_is_started_again(node: CollectingNode) -> None:
    node.start()
    node.until("good", lambda status: status.success is True)
    pid = eventually(lambda: node.value("good_value"), "its pid")
    os.kill(int(pid), signal.SIGKILL)
    status = node.until("good", lambda status: status.restarts == 1)
    assert status.timeouts == 0
    node.until("good", lambda status: status.state == "running" and status.success is True)
    eventually(lambda: node.value("good_value") not in (None, pid), "another process serves")
    eventually(lambda: "killed by signal 9" in node.log("good"), "the log says how it ended")


@pytest.mark.parametrize("code", ["sys.exit(3)", "os._exit(3)", "os.kill(os.getpid(), 11)"])
def test_ends_in_the_middle_of_a_run(node: CollectingNode, code: str) -> None:
    node.write(
        "exit.py",
        f"""
        class Exit(Collector):
            name = "exit"
            interval = 0.3
            def collect(self):
                {code}
        """,
    )
    node.start()
    status = node.until("exit", lambda status: status.success is False and bool(status.message))
    expected = {"sys.exit(3)": "SystemExit: 3", "os._exit(3)": "ended with status 3"}
    assert expected.get(code, "killed by signal 11") in status.message
    still_good(node)


def test_a_collector_that_cannot_be_started_is_tried_again(
    node: CollectingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/no/such/python")
    node.start()
    status = node.until("good", lambda status: status.state == "quarantined")
    assert "cannot be started" in status.message
    monkeypatch.undo()
    node.write("good.py", f"{GOOD}    # again\n")
    still_good(node)

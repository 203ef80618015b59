"""Plugins that change while they run."""

from __future__ import annotations

import os
import signal

import pytest

from tests.support.collecting import CollectingNode
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


def version(value: int, *, more: str = "", interval: float = 0.2) -> str:
    return f"""
        X = Metric("my_value", "gauge", "X.")
        class Mine(Collector):
            name = "mine"
            interval = {interval}
            def collect(self):
                {more or "pass"}
                yield Event(time=1.0, kind="test.run", message="{value}")
                yield X({value})
        """


def test_a_new_version_takes_over(node: CollectingNode) -> None:
    node.write("mine.py", version(1))
    node.start()
    eventually(lambda: node.value("my_value") == 1.0, "the first")
    node.write("mine.py", version(2))
    eventually(lambda: node.value("my_value") == 2.0, "the second", seconds=10)
    status = node.status("mine")
    assert status is not None
    assert status.message == ""
    assert status.restarts == 1
    # Never two at a time: after the first run of the new version there is none of the old.
    seen = [event.message for event in node.events]
    assert seen == sorted(seen)


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ("class Mine(Collector:\n", "mine.py, line 2"),
        (
            "    import nothing_like_it\n    class Mine(Collector):\n        name = 'mine'\n",
            "nothing_like_it",
        ),
        (version(2, more="raise ValueError('does not work')"), "ValueError: does not work"),
        (version(2, more="os._exit(7)"), "ended with status 7"),
        (version(2, more="time.sleep(1000)"), "deadline of 3 s"),
    ],
)
def test_a_broken_version_leaves_the_good_one_running(
    node: CollectingNode, broken: str, says: str
) -> None:
    node.configure("mine", deadline=3.0)
    node.write("mine.py", version(1))
    node.start()
    eventually(lambda: node.value("my_value") == 1.0, "the good one")
    node.write(
        "mine.py",
        broken,
        head="\n"
        if broken.startswith("class Mine(Collector:")
        else "import os, time\nfrom ray_sentinel.api import *\n",
    )
    status = node.until("mine", lambda status: bool(status.message))
    assert says in status.message
    assert "goes on" in status.message
    before = status.last_success or 0.0
    status = node.until("mine", lambda status: (status.last_success or 0.0) > before)
    assert status.success is True
    assert status.state == "running"
    eventually(lambda: node.value("my_value") == 1.0, "the good one is served")
    assert {event.message for event in node.events} == {"1"}
    node.write("mine.py", version(3))
    eventually(lambda: node.value("my_value") == 3.0, "the mended one")
    assert node.until("mine", lambda status: not status.message).success is True


def test_a_good_version_that_dies_is_started_again_though_its_file_is_broken(
    node: CollectingNode,
) -> None:
    node.write("mine.py", version(1).replace("yield X(1)", "yield X(os.getpid())"))
    node.start()
    pid = eventually(lambda: node.value("my_value"), "its pid")
    node.write("mine.py", "garbage(\n")
    node.until("mine", lambda status: "goes on" in status.message)
    os.kill(int(pid), signal.SIGKILL)
    eventually(lambda: node.value("my_value") not in (None, pid), "the good one is back")


def test_a_failing_version_is_replaced_without_trial(node: CollectingNode) -> None:
    node.write("mine.py", version(1, more="raise ValueError"))
    node.start()
    node.until("mine", lambda status: status.success is False)
    node.write("mine.py", version(2))
    eventually(lambda: node.value("my_value") == 2.0, "the mended one", seconds=10)


def test_back_to_the_version_that_runs(node: CollectingNode) -> None:
    node.write("mine.py", version(1))
    node.start()
    eventually(lambda: node.value("my_value") == 1.0, "the good one")
    node.write("mine.py", "garbage(\n")
    node.until("mine", lambda status: bool(status.message))
    node.write("mine.py", version(1))
    status = node.until("mine", lambda status: not status.message)
    assert status.restarts == 0


def test_a_file_that_is_taken_away(node: CollectingNode) -> None:
    node.write("mine.py", version(1))
    node.start()
    eventually(lambda: node.value("my_value") == 1.0, "it is served")
    (node.plugins / "mine.py").unlink()
    eventually(lambda: node.value("my_value") is None, "it is not served any more")
    assert node.status("mine") is None


def test_a_script_is_reloaded_too(node: CollectingNode) -> None:
    node.configure("s", interval=0.2)
    node.write_script("s.sh", "echo script_value 1")
    node.start()
    eventually(lambda: node.value("script_value") == 1.0, "the first")
    node.write_script("s.sh", "exit 4")
    node.until("s", lambda status: "ended with status 4" in status.message)
    eventually(lambda: node.value("script_value") == 1.0, "the good one is served")
    node.write_script("s.sh", "echo script_value 2")
    eventually(lambda: node.value("script_value") == 2.0, "the second")


def test_a_pushed_plugin_runs_within_a_moment(node: CollectingNode) -> None:
    node.start()
    assert node.runner is not None
    node.runner.install_plugin("pushed.sh", b"#!/bin/sh\necho pushed_value 1\n")
    eventually(lambda: node.value("pushed_value") == 1.0, "it is served", seconds=10)


def test_two_files_with_one_name(node: CollectingNode) -> None:
    node.write("a.py", version(1))
    node.write("b.py", version(2))
    node.start()
    status = node.until(str(node.plugins / "b.py"), lambda status: True)
    assert "mine is the name of a collector" in status.message
    eventually(lambda: node.value("my_value") == 1.0, "the first one is served")
    (node.plugins / "a.py").unlink()
    eventually(lambda: node.value("my_value") == 2.0, "the other one follows")


def test_several_collectors_in_one_file(node: CollectingNode) -> None:
    node.write(
        "pair.py",
        """
        L = Metric("left_pid", "gauge", "L.")
        R = Metric("right_pid", "gauge", "R.")
        class Left(Collector):
            name = "left"
            def collect(self):
                yield L(os.getpid())
        class Right(Collector):
            name = "right"
            def collect(self):
                yield R(os.getpid())
        """,
    )
    node.start()
    eventually(lambda: node.value("left_pid") and node.value("right_pid"), "both")
    assert node.value("left_pid") != node.value("right_pid")

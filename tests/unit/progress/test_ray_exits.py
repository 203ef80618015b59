"""How drivers of Ray's jobs end, as the agent of their node sees it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ray_sentinel.model.identity import Node
from ray_sentinel.progress.discovery.ray_processes import TOLD_SECONDS, RayProcessWatch
from ray_sentinel.progress.exits import ExitWatch
from ray_sentinel.progress.last_output import LastOutput
from ray_sentinel.progress.proc.processes import ProcessTable
from tests.support.waiting import eventually

NODE = Node(id="n0", host="one", address="10.0.0.1")


@pytest.mark.parametrize(
    ("way", "expected"),
    [("kill", (None, signal.SIGKILL)), ("raise", (1, None)), ("return", (0, None))],
)
def test_the_status_of_a_driver_is_told_for_some_time(
    way: str, expected: tuple[int | None, int | None], tmp_path: Path
) -> None:
    code = {"kill": "input()", "raise": "input(); raise ValueError", "return": "input()"}[way]
    with contextlib.closing(ExitWatch()) as exits:
        watch = RayProcessWatch(os.getpid(), exits, LastOutput())
        with (
            open(tmp_path / "err", "wb") as err,
            subprocess.Popen(
                [sys.executable, "-c", code], stdin=subprocess.PIPE, stderr=err
            ) as driver,
        ):
            drivers = {(NODE.address, driver.pid), ("10.0.0.2", 1)}
            (seen,) = watch.poll(NODE, ProcessTable().refresh(0), drivers, time.time())
            assert seen.process.pid == driver.pid
            assert watch.exits(time.time()) == ()
            if way == "kill":
                driver.kill()
            driver.communicate(b"\n")
        eventually(lambda: watch.exits(time.time()), "its end is told", 10.0)
        (ended,) = watch.exits(time.time())
        assert ended.process == seen.process
        assert (ended.code, ended.signal) == expected
        assert ("ValueError" in ended.last_output) == (way == "raise")
        assert watch.exits(time.time() + TOLD_SECONDS + 1.0) == ()

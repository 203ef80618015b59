"""Until when the kernel lets a thread sleep."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from ray_sentinel.capture.timed_sleep import wakes_at
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


NEEDS = """
import asyncio, ctypes, multiprocessing.connection, os, queue, select, selectors, socket
import threading, time
pipe, poll, server = os.pipe()[0], select.poll(), socket.create_server(("127.0.0.1", 0))
poll.register(pipe, select.POLLIN)
"""


@pytest.mark.parametrize(
    "sleep",
    [
        "time.sleep(1000)",
        "asyncio.run(asyncio.sleep(1000))",
        "threading.Event().wait(1000)",
        "queue.Queue().get(timeout=1000)",
        "select.select([pipe], [], [], 1000)",
        "poll.poll(1000_000)",
        "ctypes.CDLL(None).ppoll(None, 0, (ctypes.c_long * 2)(1000, 0), None)",
        "selectors.EpollSelector().select(1000)",
        "multiprocessing.connection.wait([pipe], 1000)",
        "socket.create_connection(server.getsockname(), 1000).recv(1)",
    ],
)
def test_a_sleep_ends_when_it_was_told_to(sleep: str) -> None:
    code = f"{NEEDS}\nprint(time.time(), flush=True)\n{sleep}"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        begun = float(process.stdout.readline())
        eventually(lambda: wakes_at(process.pid, process.pid) is not None, "it sleeps", 20.0)
        ends = wakes_at(process.pid, process.pid)
        process.kill()
    assert ends is not None
    assert begun + 1000.0 <= ends + 0.5 <= time.time() + 1001.0


@pytest.mark.parametrize(
    "wait",
    [
        "sys.stdin.read()",
        "threading.Event().wait()",
        "asyncio.new_event_loop().run_forever()",
        "select.select([sys.stdin], [], [])",
        "multiprocessing.connection.wait([0])",
    ],
)
def test_who_waits_for_something_else_does_not_sleep(wait: str) -> None:
    code = f"{NEEDS}\nimport sys; print(flush=True); {wait}"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert wakes_at(process.pid, process.pid) is None
        process.kill()
    assert wakes_at(process.pid, process.pid) is None

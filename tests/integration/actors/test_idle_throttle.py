"""A main thread that Ray wakes a hundred times a second: how often it runs, what still gets by."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ray_sentinel.actors.agent.ray_node import rest_between_calls

pytestmark = pytest.mark.integration

PROGRAM = """
import signal, sys, threading, time
from ray_sentinel.actors.agent.ray_node import rest_between_calls

def beats(seconds):
    count, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.01)  # as Ray's main thread: handlers run when it wakes
        count += 1
    return count

worked = 0
def work():
    global worked
    while True:
        time.sleep(0.01)
        worked += 1

signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
before = beats(1.0)
rest_between_calls()
threading.Thread(target=work, daemon=True).start()
print(before, beats(1.0), worked, flush=True)
while True:
    time.sleep(0.01)
"""


@pytest.fixture
def resting() -> Iterator[subprocess.Popen[str]]:
    child = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True)
    try:
        yield child
    finally:
        child.kill()
        child.communicate(timeout=30)


def test_it_wakes_seldom_and_other_threads_do_not_wait(resting: subprocess.Popen[str]) -> None:
    assert resting.stdout is not None
    before, after, worked = map(int, resting.stdout.readline().split())
    assert after < before / 2
    assert after >= 3, "it must be awake now and then"
    assert worked > 2 * after


def test_a_signal_that_ends_it_is_handled_within_a_rest(resting: subprocess.Popen[str]) -> None:
    assert resting.stdout is not None
    assert resting.stdout.readline()
    os.kill(resting.pid, signal.SIGTERM)
    assert resting.wait(timeout=30) == 7


def test_it_can_be_ended_and_leaves_a_normal_end_alone() -> None:
    program = """
import threading
from ray_sentinel.actors.agent.ray_node import rest_between_calls
rest_between_calls().stop(30)
assert "ray-sentinel-rest" not in [thread.name for thread in threading.enumerate()]
rest_between_calls()
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0


def test_only_the_main_thread_can_rest() -> None:
    with ThreadPoolExecutor() as pool, pytest.raises(ValueError, match="main thread"):
        pool.submit(rest_between_calls).result(30)

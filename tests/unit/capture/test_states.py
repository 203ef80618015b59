"""What /proc says of a process's threads."""

from __future__ import annotations

import os
import queue
import threading

from ray_sentinel.capture.states import read_state, read_switches
from tests.support.waiting import eventually


def test_only_a_thread_that_runs_is_put_on_a_cpu() -> None:
    orders: queue.Queue[str] = queue.Queue()
    tids: queue.Queue[int] = queue.Queue()

    def work() -> None:
        tids.put(threading.get_native_id())
        while orders.get() != "end":
            continue

    thread = threading.Thread(target=work)
    thread.start()
    tid = tids.get(timeout=30.0)
    eventually(lambda: read_state(os.getpid(), tid) == "S", "it waits for an order")
    before = read_switches(os.getpid(), tid)
    assert before is not None
    assert read_switches(os.getpid(), tid) == before
    orders.put("go on")
    eventually(lambda: (read_switches(os.getpid(), tid) or 0) > before, "it has run")
    orders.put("end")
    thread.join(timeout=30.0)
    eventually(lambda: read_switches(os.getpid(), tid) is None, "it is gone")

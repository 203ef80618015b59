"""How much the children of a process have run, of real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from ray_sentinel.capture.child_work import Descendants
from ray_sentinel.capture.session import sample_processes
from ray_sentinel.evidence.stacks import awaits_child, awaits_pool
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.progress.proc.proc_stat import read_stat
from tests.support.waiting import eventually

SPINS = [sys.executable, "-c", "while True: pass"]
SLEEPS = ["sleep", "600"]
BELOW = ["sh", "-c", f"{SPINS[0]} -c '{SPINS[2]}' & wait"]
WAITS = """
import subprocess, sys
others = [subprocess.Popen(["sleep", "600"]) for _ in range(2)]
subprocess.run(sys.argv[2:], capture_output=sys.argv[1] == "reads")
"""
POOLS = """
import concurrent.futures, multiprocessing, operator, subprocess, sys, time
other = subprocess.Popen(["sh", "-c", "while true; do true; done"])
context = multiprocessing.get_context(sys.argv[2])
make, seconds = {"map": (operator.pow, (7, 10**9)), "sleep": (time.sleep, (600,))}[sys.argv[3]]
if sys.argv[1] == "pool":
    context.Pool(2).apply(make, seconds)
elif sys.argv[1] == "process":
    one = context.Process(target=make, args=seconds)
    one.start()
    one.join()
else:
    concurrent.futures.ProcessPoolExecutor(2, context).submit(make, *seconds).result()
"""


class Waiter:
    """A process that waits for a child to end, beside others that sleep."""

    def __init__(self, how: str, command: list[str], program: str = WAITS) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, how, *command], start_new_session=True
        )
        stat = read_stat(self.process.pid)
        assert stat is not None
        self.id = ProcessId("here", stat.pid, stat.start)

    def ran(self) -> float:
        """By a look at it as agents take it, once it waits."""

        def waits() -> float | None:
            (fact,) = sample_processes([self.id])
            return fact.children_ran if awaits_child(fact) or awaits_pool(fact) else None

        found = eventually(lambda: (told := waits()) is not None and (told,), "it waits", 60.0)
        assert found
        return found[0]

    def ran_since_then(self) -> float:
        """The same from one look to the next."""
        before = self.ran()
        return self.ran() - before

    def close(self) -> None:
        os.killpg(self.process.pid, 9)
        self.process.wait()


@pytest.fixture
def waiter(request: pytest.FixtureRequest) -> Iterator[Waiter]:
    made = Waiter(*request.param)
    yield made
    made.close()


@pytest.mark.parametrize(
    "waiter",
    [("waits", SPINS), ("waits", BELOW), ("reads", SPINS), ("reads", BELOW)],
    indirect=True,
    ids=["waits", "waits-for-a-shell", "reads", "reads-of-a-shell"],
)
def test_of_a_child_that_works(waiter: Waiter) -> None:
    before = waiter.ran()
    eventually(lambda: waiter.ran() > before + 0.3, "it works", 60.0)


@pytest.mark.parametrize(
    "waiter", [("waits", SLEEPS), ("reads", SLEEPS)], indirect=True, ids=["waits", "reads"]
)
def test_of_a_child_that_sleeps(waiter: Waiter) -> None:
    eventually(lambda: waiter.ran_since_then() < 0.005, "it has begun to sleep", 60.0)


POOL_WAITS = [
    (how, context) for how in ("pool", "process", "futures") for context in ("fork", "spawn")
]


@pytest.mark.parametrize(("how", "context"), POOL_WAITS)
def test_of_a_pool(how: str, context: str) -> None:
    works, rests = (Waiter(how, [context, doing], POOLS) for doing in ("map", "sleep"))
    try:
        before = works.ran()
        eventually(lambda: works.ran() > before + 0.3, "the pool works", 60.0)
        # The program that works beside it is no part of it.
        eventually(lambda: rests.ran_since_then() < 0.005, "the pool rests", 60.0)
    finally:
        works.close()
        rests.close()


def test_of_several_the_one_counts_for_which_a_thread_waits() -> None:
    works, rests = (
        subprocess.Popen(command, start_new_session=True) for command in (SPINS, SLEEPS)
    )
    thread = threading.Thread(target=rests.wait)
    thread.start()
    tid = thread.native_id
    assert tid is not None
    try:
        pid = os.getpid()
        own = eventually(lambda: read_stat(pid, tid), "the thread is there")
        assert own

        def ran() -> float:
            return Descendants().ran_for(pid, tid) or 0.0

        eventually(lambda: ran() < 0.2, "it waits", 30.0)
        before = Descendants().ran_for(pid, pid) or 0.0  # this thread waits for none: all count
        eventually(lambda: (Descendants().ran_for(pid, pid) or 0.0) > before + 0.3, "one works")
        assert ran() < 0.2
    finally:
        for child in (works, rests):
            os.killpg(child.pid, 9)
            child.wait()
        thread.join()


def test_without_children_nothing_is_known() -> None:
    child = subprocess.Popen(SLEEPS)
    try:
        assert Descendants().ran_for(child.pid, child.pid) is None
        assert Descendants().ran_for(2**22 + 1, 1) is None
    finally:
        child.kill()
        child.wait()

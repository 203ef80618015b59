"""How much the children of a process have run, of real processes."""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_sentinel.capture.child_work import child_work
from ray_sentinel.capture.session import sample_processes
from ray_sentinel.evidence.stacks import children_worked
from ray_sentinel.evidence.stacks.compare import awaiting_programs, only_looked
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.stacks import ChildWork, StackFact
from ray_sentinel.progress.proc.proc_stat import read_stat
from tests.support.living import descendants
from tests.support.ray_cluster import RayCluster
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

SPINS = [sys.executable, "-c", "while True: pass"]
SLEEPS = ["sleep", "600"]
BELOW = ["sh", "-c", f"{SPINS[0]} -c '{SPINS[2]}' & wait"]
WAITS = """
import subprocess, sys
others = [subprocess.Popen(["sleep", "600"]) for _ in range(2)]
if sys.argv[1] == "lines":
    list(subprocess.Popen(sys.argv[2:], stdout=subprocess.PIPE).stdout)
else:
    subprocess.run(sys.argv[2:], capture_output=sys.argv[1] == "reads")
"""
POOLS = """
import concurrent.futures, multiprocessing, operator, sys, time
context = multiprocessing.get_context(sys.argv[2])
make, seconds = {"map": (operator.pow, (7, 10**9)), "sleep": (time.sleep, (600,))}[sys.argv[3]]
if sys.argv[1] == "pool":
    context.Pool(2).apply(make, seconds)
elif sys.argv[1] == "batches":
    import torch
    class Records(torch.utils.data.Dataset):
        def __len__(self):
            return 9
        def __getitem__(self, number):
            make(*seconds)
    next(iter(torch.utils.data.DataLoader(Records(), num_workers=2)))
elif sys.argv[1] in ("process", "pipe", "queue"):
    one = context.Process(target=make, args=seconds)
    one.start()
    pipe, queue = context.Pipe(), context.Queue()
    {"process": one.join, "pipe": pipe[0].recv, "queue": queue.get}[sys.argv[1]]()
else:
    concurrent.futures.ProcessPoolExecutor(2, context).submit(make, *seconds).result()
"""
COROUTINES = """
import asyncio, subprocess, sys
if sys.argv[1] == "uvloop":
    import uvloop
    uvloop.install()
async def main():
    program = await asyncio.create_subprocess_exec(*sys.argv[2:], stdout=subprocess.PIPE)
    await program.communicate()
older = subprocess.Popen(["sh", "-c", "sleep 600 & wait"])
try:
    older.wait(3.0)
except subprocess.TimeoutExpired:
    asyncio.run(main())
"""
LOOKS_EVERY = 3.0
"""Seconds between two looks at one process; agents leave some more."""
OLDER = 3.0
"""How many seconds older one of its children is than the other, at least."""
SERVERS = """
import asyncio, os, socket, subprocess, sys, time
family, how, doing = sys.argv[1:]
if doing == "serves":
    there = socket.socket(fileno=0)
    there.recv(1)
    until = time.monotonic() + 3.0
    while how == "works" or time.monotonic() < until:
        pass
    time.sleep(600)
listens = socket.socket(socket.AF_UNIX if family == "unix" else socket.AF_INET)
listens.bind("" if family == "unix" else ("127.0.0.1", 0))
listens.listen()
here = socket.socket(listens.family)
here.connect(listens.getsockname())
there = listens.accept()[0]
code = sys.orig_argv[sys.orig_argv.index("-c") + 1]
command = [sys.executable, "-c", code, family, how, "serves"]
subprocess.Popen(command, stdin=there)
there.close()
spins = subprocess.Popen([sys.executable, "-c", "while True: pass"])
time.sleep(4.0)
here.send(b"x")
async def awaits():
    reader, _ = await asyncio.open_connection(sock=here)
    await reader.read(1)
if family == "coroutines":
    asyncio.run(awaits())
else:
    here.recv(1)
"""
"""Another child works all the time, from which no answer can be awaited."""
COROUTINES_POOL = """
import asyncio, concurrent.futures, operator
async def main():
    with concurrent.futures.ProcessPoolExecutor(1) as pool:
        await asyncio.get_running_loop().run_in_executor(pool, operator.pow, 7, 10**9)
asyncio.run(main())
"""
RAY_JOB = """
import asyncio, concurrent.futures, sys, ray
WORKS = "import os; parent = os.getppid()\\nwhile os.getppid() == parent: pass"
@ray.remote(num_cpus=0)
class Awaiting:
    async def program(self):
        started = await asyncio.create_subprocess_exec(sys.executable, "-c", WORKS)
        await started.wait()
    async def pool(self):
        pool = concurrent.futures.ProcessPoolExecutor(1)
        await asyncio.get_running_loop().run_in_executor(pool, exec, WORKS)
ray.init()
actors = [Awaiting.remote() for _ in range(2)]
ray.get([actors[0].program.remote(), actors[1].pool.remote()])
"""
"""What they start ends with them."""


class Waiter:
    """A process that waits for a child to end, beside others that sleep."""

    def __init__(
        self, how: str, command: list[str], program: str = WAITS, oldest: float = math.inf
    ) -> None:
        """Of children of which it is not known whether they are awaited, older ones do not
        count."""
        self.oldest = oldest
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, how, *command], start_new_session=True
        )
        stat = read_stat(self.process.pid)
        assert stat is not None
        self.id = ProcessId("here", stat.pid, stat.start)

    def look(self) -> StackFact:
        """As agents take it, once it waits."""

        def waiting() -> StackFact | None:
            (fact,) = awaiting_programs(sample_processes([self.id]), self.oldest)
            return fact if fact.children is not None else None

        return eventually(waiting, "it waits", 60.0)

    def children(self) -> ChildWork:
        """What it waits for in such a look."""
        work = self.look().children
        assert work is not None
        return work

    def works(self) -> bool:
        """Whether its children work from one look to another one, a second later at least."""
        before, after = self._two_looks(1.0)
        return children_worked(before.children, after.children)

    def only_looks(self) -> bool:
        """Whether it does nothing between two looks but wake to see whether anything has come."""
        return only_looked(*self._two_looks(LOOKS_EVERY))

    def _two_looks(self, seconds: float) -> tuple[StackFact, StackFact]:
        """At least so many seconds apart."""
        before = self.look()

        def later() -> StackFact | None:
            look = self.look()
            return look if look.at - before.at > seconds else None

        return before, eventually(later, "a later look")

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
    [(how, command) for how in ("waits", "reads", "lines") for command in (SPINS, BELOW)],
    indirect=True,
    ids=lambda one: f"{one[0]}-{'a-shell' if one[1] is BELOW else 'a-program'}",
)
def test_of_a_child_that_works(waiter: Waiter) -> None:
    eventually(waiter.works, "it works", 60.0)


@pytest.mark.parametrize(
    "waiter",
    [(how, SLEEPS) for how in ("waits", "reads", "lines")],
    indirect=True,
    ids=lambda one: one[0],
)
def test_of_a_child_that_sleeps(waiter: Waiter) -> None:
    eventually(lambda: not waiter.works(), "it has begun to sleep", 60.0)
    assert waiter.children().ran.keys()


POOL_WAITS = [
    (how, context) for how in ("pool", "process", "futures") for context in ("fork", "spawn")
]
POOL_WAITS += [("pipe", "fork"), ("queue", "spawn"), ("batches", "fork")]


@contextlib.contextmanager
def working_and_resting(works: Waiter, rests: Waiter) -> Iterator[None]:
    """Both are closed in the end; the processes of one are seen to work, those of the other to
    rest."""
    try:
        eventually(works.works, "they work", 60.0)
        eventually(lambda: not rests.works(), "they rest", 60.0)
        yield
    finally:
        works.close()
        rests.close()


@pytest.mark.parametrize(("how", "context"), POOL_WAITS)
def test_of_processes_that_python_starts(how: str, context: str) -> None:
    """A data loader has a deadline of five seconds, at which it looks whether they live."""
    works, rests = (Waiter(how, [context, doing], POOLS) for doing in ("map", "sleep"))
    with working_and_resting(works, rests):
        assert rests.only_looks() is (how == "batches")


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_coroutines_may_await_what_was_started_last(loop: str) -> None:
    works, rests = (Waiter(loop, command, COROUTINES) for command in (BELOW, SLEEPS))
    with working_and_resting(works, rests):
        ages = works.children().ages
        assert len(ages) == 4, "each child has one below it"
        youngest, oldest = min(ages.values()), max(ages.values())
        assert youngest > 0.0, "its output comes over a Unix socket, which is no connection"
        assert oldest - youngest >= OLDER - 0.1, "clock ticks"
        assert sorted(ages.values()) == pytest.approx([youngest] * 2 + [oldest] * 2)


@pytest.mark.parametrize("family", ["tcp", "unix", "coroutines"])
def test_of_a_child_that_is_asked_over_a_connection(family: str) -> None:
    works, rests = (
        Waiter(family, [how, "asks"], SERVERS, oldest=OLDER) for how in ("works", "rests")
    )
    with working_and_resting(works, rests):
        pass


def test_coroutines_await_a_pool() -> None:
    waiter = Waiter("", [], COROUTINES_POOL)
    try:
        eventually(waiter.works, "it works", 60.0)
        assert waiter.children().ages == {}, "all of it counts"
    finally:
        waiter.close()


def test_coroutines_of_actors_await_either(ray_cluster: RayCluster, tmp_path: Path) -> None:
    """Ray runs them by uvloop where that is installed."""
    script = tmp_path / "job.py"
    script.write_text(RAY_JOB)

    def looked_at() -> dict[ProcessId, ChildWork]:
        facts = sample_processes([*_titled(b"ray::Awaiting")])
        return {fact.process: fact.children for fact in facts if fact.children is not None}

    def both_work() -> bool:
        before, after = looked_at(), looked_at()
        works = [children_worked(before.get(one), work) for one, work in after.items()]
        ages_told = sorted(bool(work.ages) for work in after.values())
        return works == [True, True] and ages_told == [False, True]

    with ray_cluster.driver(script):
        eventually(both_work, "both await a process that works, one of them a pool's", 60.0)


def _titled(prefix: bytes) -> Iterator[ProcessId]:
    for pid in descendants(os.getpid()):
        stat = read_stat(pid)
        with contextlib.suppress(OSError):
            if stat and Path(f"/proc/{pid}/cmdline").read_bytes().startswith(prefix):
                yield ProcessId("here", pid, stat.start)


def test_short_programs_of_a_shell_count_when_they_have_ended() -> None:
    script = f"for n in $(seq 1000); do {sys.executable} -c 'sum(range(10**6))'; done"
    waiter = Waiter("waits", ["sh", "-c", script])
    try:
        eventually(lambda: waiter.works(), "they work", 60.0)
    finally:
        waiter.close()


def test_of_several_the_one_counts_for_which_a_thread_waits() -> None:
    works, rests = (
        subprocess.Popen(command, start_new_session=True) for command in (SPINS, SLEEPS)
    )
    thread = threading.Thread(target=rests.wait)
    thread.start()
    try:
        pid, tid = os.getpid(), thread.native_id
        assert tid is not None

        def looked_at(by: int) -> set[int]:
            work = child_work(pid, by)
            return set(work.ran) if work is not None else set()

        eventually(lambda: looked_at(tid) == {rests.pid}, "it waits", 60.0)
        assert looked_at(pid) >= {works.pid, rests.pid}, "this thread waits for none"
    finally:
        for child in (works, rests):
            os.killpg(child.pid, 9)
            child.wait()
        thread.join()


def test_rays_own_programs_are_no_work(tmp_path: Path) -> None:
    folder = tmp_path / "ray" / "dashboard"
    folder.mkdir(parents=True)
    (folder / "dashboard.py").write_text("while True: pass")
    ours = [
        subprocess.Popen(command, start_new_session=True)
        for command in ([sys.executable, str(folder / "dashboard.py")], SLEEPS)
    ]
    try:
        daemon, child = (one.pid for one in ours)

        def looked_at() -> set[int]:
            work = child_work(os.getpid(), os.getpid())
            return set(work.ran) if work is not None else set()

        eventually(lambda: child in looked_at() and daemon not in looked_at(), "it is known", 60.0)
    finally:
        for one in ours:
            os.killpg(one.pid, 9)
            one.wait()


def test_without_children_nothing_is_known() -> None:
    child = subprocess.Popen(SLEEPS)
    try:
        assert child_work(child.pid, child.pid) is None
        assert child_work(2**22 + 1, 1) is None
    finally:
        child.kill()
        child.wait()

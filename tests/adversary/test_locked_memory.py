"""A rank hangs in the kernel with its memory locked: whoever reads its environment hangs with it.

So nobody whom others wait for reads it. The lock is really held here (``locked_memory``).
"""

from __future__ import annotations

import mmap
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

import ray_sentinel
from ray_sentinel import process, signals
from ray_sentinel.actors.coordinator.fleet import autoscales
from ray_sentinel.collect import child_registry
from ray_sentinel.progress.discovery.descendants import descendants
from ray_sentinel.progress.discovery.front_end import metrics_url
from ray_sentinel.progress.proc import process_memory
from ray_sentinel.progress.proc.process_memory import PATIENCE, memory_at, memory_file, memory_files
from ray_sentinel.store.prometheus.tsdb import listen_address
from ray_sentinel.supervise.attempt.orphans import orphans
from tests.support.collecting import CollectingNode, alive
from tests.support.hanging_disk import hanging_disk
from tests.support.locked_memory import locked_memory, reads_hang
from tests.support.other_user import NOBODY
from tests.support.parts import needs_root
from tests.support.waiting import eventually

V = TypeVar("V")

SOON = 5 * PATIENCE
"""Seconds in which what waits for no memory lock has returned, on a busy machine too."""
DAEMON = """
import os, sys, time
if os.fork():
    sys.exit()
os.setsid()
if os.fork():
    os._exit(0)
print(os.getpid(), flush=True)
os.close(1)
time.sleep(60)
"""


def soon(do: Callable[[], V]) -> V:
    begun = time.monotonic()
    value = do()
    assert time.monotonic() - begun < SOON
    return value


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[int]:
    """The pid of a rank whose memory is locked."""
    environ = {**os.environ, "RANK": "0", "WORLD_SIZE": "2"}
    with hanging_disk(tmp_path) as disk, locked_memory(disk, environ) as child:
        assert reads_hang(child.pid, "environ")
        assert reads_hang(child.pid, "cmdline")
        yield child.pid


def test_what_a_collector_left_is_found_beside_it(locked: int) -> None:
    """Whose leader has ended: only then are environments looked at at all."""
    group = child_registry.SpawnedGroup(2**22 + 1, 0, "of-the-test")
    environ = {**os.environ, child_registry.FAMILY_VARIABLE: "of-the-test"}
    done = subprocess.run(
        ["setsid", sys.executable, "-c", DAEMON], env=environ, stdout=subprocess.PIPE, text=True
    )
    daemon = int(done.stdout)
    try:
        start = signals.start_of(daemon)
        found = soon(lambda: child_registry.members(group))
        assert (daemon, start) in found
        assert locked not in [pid for pid, _ in found]
        begun = time.monotonic()
        assert child_registry.members(group) == found
        assert time.monotonic() - begun < child_registry.PATIENCE, "it is not asked again"
        soon(lambda: child_registry.kill(group))
        eventually(lambda: not alive(daemon), "the daemon is ended")
    finally:
        if alive(daemon):
            os.kill(daemon, 9)


def test_collectors_are_restarted_beside_it(locked: int, tmp_path: Path) -> None:
    node = CollectingNode(tmp_path)
    code = f"""
        import subprocess
        X = Metric("its_pid", "gauge", "X.")
        Y = Metric("daemon", "gauge", "Y.")
        class C(Collector):
            name = "c"
            interval = 0.1
            daemon = 0
            def collect(self):
                if not self.daemon:
                    command = [sys.executable, "-c", {DAEMON!r}]
                    self.daemon = int(subprocess.run(command, stdout=-1).stdout)
                yield X(os.getpid())
                yield Y(self.daemon)
        """
    node.write("c.py", code)
    node.start()
    try:
        first = eventually(lambda: node.value("its_pid"), "it runs")
        daemon = int(eventually(lambda: node.value("daemon"), "its daemon"))
        node.write("c.py", f"{code}# again\n")
        eventually(lambda: node.value("its_pid") not in (None, first), "another runs", seconds=10)
        eventually(lambda: not alive(daemon), "its daemon went with it")
        os.kill(int(node.value("its_pid") or 0), 9)
        daemon = int(node.value("daemon") or 0)
        eventually(lambda: not alive(daemon), "also when it is killed", seconds=10)
    finally:
        node.stop()


def test_supervision_goes_on_beside_it(locked: int) -> None:
    found = soon(lambda: descendants(os.getpid()))
    assert locked in [one.pid for one in found]
    assert soon(lambda: orphans({"NO_SUCH_VARIABLE_OF_OURS": "1"}, 0)) == []


def test_who_asks_for_one_file_does_not_wait_for_ever(locked: int) -> None:
    assert soon(lambda: memory_file(locked, "cmdline")) is None
    assert soon(lambda: memory_at(locked, mmap.PAGESIZE, 16)) is None
    assert soon(lambda: metrics_url(locked, "vllm")) == ""
    assert soon(lambda: listen_address(locked)) == ""
    assert soon(lambda: autoscales({})) is False
    begun = time.monotonic()
    both = memory_files([locked, os.getpid()], "cmdline")
    assert time.monotonic() - begun < PATIENCE, "it is not read again"
    assert list(both) == [os.getpid()]


def test_it_is_read_again_once_it_goes_on(tmp_path: Path) -> None:
    with hanging_disk(tmp_path) as disk, locked_memory(disk, os.environ) as child:
        assert memory_file(child.pid, "environ") is None
        disk.answer()
        eventually(lambda: memory_file(child.pid, "environ"), "it is read")


@needs_root()
def test_what_others_have_hanging_takes_no_place_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_memory, "MOST_HANGING", 1)
    memory = process_memory.ProcessMemory()
    own = (os.getpid(), signals.start_of(os.getpid()))
    with (
        hanging_disk(tmp_path) as disk,
        locked_memory(disk, os.environ, NOBODY) as child,
    ):
        assert reads_hang(child.pid, "environ")
        theirs = (child.pid, signals.start_of(child.pid))
        assert soon(lambda: memory.own([theirs])) == {}
        assert soon(lambda: memory.own([own, theirs])).keys() == {own}
        assert soon(lambda: memory.maps([own])).keys() == {own}


def test_process_runs_go_on_beside_it(locked: int) -> None:
    assert soon(lambda: process.run(["true"], deadline=20)).ok


BEHIND_THE_LOCK = re.compile(r'["/](environ|cmdline|maps|smaps|mem)"')
ASIDE = {
    "progress/proc/process_memory.py",
    # These read in threads of ``Bounded``.
    "progress/discovery/live_environ.py",
    "capture/recorder_dumps.py",
    "capture/ras.py",
    "capture/nccl_library.py",
    # This one opens the memory and reads nothing.
    "progress/proc/tracing.py",
}


def test_nobody_else_reads_what_lies_behind_the_lock() -> None:
    package = Path(ray_sentinel.__file__).parent
    found = []
    for path in sorted(package.rglob("*.py")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            reads = re.search(r"\bread_(bytes|text)\(|\bopen\(|\.cmdline\(\)|\.environ\(\)", line)
            name = str(path.relative_to(package))
            if reads and (BEHIND_THE_LOCK.search(line) or "psutil" in line) and name not in ASIDE:
                found.append(f"{name}:{number}: {line.strip()}")
    assert found == [], "read it by progress/proc/process_memory.py"

"""Processes that do one thing, to be looked at by tracers."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys
import textwrap
import time
from pathlib import Path

from ray_sentinel.capture import guard
from ray_sentinel.capture.states import read_state
from ray_sentinel.capture.tracer import Traced, all_tracers
from ray_sentinel.model.identity import ProcessId, Rank, RankId
from ray_sentinel.progress.proc.proc_stat import read_stat
from tests.support.waiting import eventually

SOURCES = {
    "asleep": "import time\ndef work():\n    time.sleep(600)\n",
    "spinning": "def work():\n    n = 0\n    while True:\n        n += 1\n",
    "busy_server": """
        import threading, time
        def train():
            time.sleep(600)
        def work():
            threading.Thread(target=train, name="train").start()
            while True:
                pass
        """,
    "fifo": "import sys\ndef work():\n    open(sys.argv[1]).read()\n",
    "locked": """
        import threading
        def work():
            one, two, both = threading.Lock(), threading.Lock(), threading.Barrier(2)
            def other():
                with two:
                    both.wait()
                    one.acquire()
            threading.Thread(target=other, daemon=True).start()
            with one:
                both.wait()
                two.acquire()
        """,
    "delegating": """
        import queue, threading
        def function(results, held):
            with held:
                results.put("never")
        def work():
            results, held = queue.Queue(), threading.Lock()
            held.acquire()
            threading.Thread(target=function, args=(results, held), daemon=True).start()
            while True:
                try:
                    results.get(timeout=0.2)
                except queue.Empty:
                    pass
        """,
    "gil_sleeper": """
        import ctypes, threading, time
        def tick():
            while True:
                time.sleep(0.01)
        def work():
            threading.Thread(target=tick, daemon=True).start()
            time.sleep(0.1)
            ctypes.PyDLL(None).sleep(600)
        """,
    "socket": """
        import socket
        def work():
            server = socket.create_server(("127.0.0.1", 0))
            socket.create_connection(server.getsockname()).recv(1)
        """,
}


class Terminal:
    """An interactive interpreter, at which somebody types."""

    def __init__(self) -> None:
        self._keys, screen = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-i", "-q"], stdin=screen, stdout=screen, stderr=screen
        )
        os.close(screen)
        os.set_blocking(self._keys, False)
        eventually(self._prompts, "it prompts")

    @property
    def identity(self) -> ProcessId:
        return identity(self._process.pid)

    def type(self, line: str) -> None:
        os.write(self._keys, f"{line}\n".encode())

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._keys)

    def _prompts(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            return b">>>" in os.read(self._keys, 4096)
        return False


class Processes:
    """Starts processes that do one thing, and ends them, by pid."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, kind: str) -> ProcessId:
        """Start a process of a kind in ``SOURCES``. Returns once it does what its source says."""
        source = textwrap.dedent(SOURCES[kind]) + "\nprint('ready', flush=True)\nwork()\n"
        script = self.folder / f"job_{kind}.py"
        script.write_text(source)
        fifo = self.folder / "pipe"
        if not fifo.exists():
            os.mkfifo(fifo)
        child = subprocess.Popen(
            [sys.executable, str(script), str(fifo)], stdout=subprocess.PIPE, cwd=self.folder
        )
        self.started.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        wanted = "R" if kind in ("spinning", "busy_server") else "S"
        eventually(lambda: read_state(child.pid) == wanted, f"state {wanted}", every=0.02)
        time.sleep(0.3)  # from "ready" to the call that blocks
        return identity(child.pid)

    def end(self) -> None:
        """Kill all of them."""
        for child in self.started:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            child.wait(timeout=10)
            if child.stdout:
                child.stdout.close()


def identity(pid: int) -> ProcessId:
    """The process that has this pid now."""
    stat = read_stat(pid)
    assert stat is not None
    return ProcessId("node1", pid, stat.start)


def run(tool: str, process: ProcessId, deadline: float = 60.0) -> Traced:
    """What a tool sees of the process."""
    return guard.trace(all_tracers()[tool], process, deadline)


def rank(number: int, process: ProcessId) -> Rank:
    """The process as a rank of a job."""
    return Rank(id=RankId("job", 0, number), process=process, node="n1")


def running(process: ProcessId) -> bool:
    """Whether it runs or sleeps: it is neither stopped nor traced nor gone."""
    return read_state(process.pid) in ("R", "S")

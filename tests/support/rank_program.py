"""A rank for tests: steps every 50 ms, and after step AT does what it was told.

python rank_program.py FAULT SECONDS AT

A fault whose name ends in ``-armed`` waits until the rank's watchdog is armed.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable

from ray_sentinel.progress import record
from ray_sentinel.progress.rank import lifecycle, who
from ray_sentinel.progress.rank.writer import ProgressWriter

CLONE_VFORK = 0x4000
AT = int(sys.argv[3])
SYS_CLONE = {"x86_64": 56, "aarch64": 220}


def block_in_kernel(seconds: float) -> None:
    """CLONE_VFORK without shared memory: the parent waits in D state until the child ends."""
    library = ctypes.PyDLL(None, use_errno=True)
    number = SYS_CLONE[os.uname().machine]
    if library.syscall(number, CLONE_VFORK | signal.SIGCHLD, 0, 0, 0, 0) == 0:
        library.usleep(int(seconds * 1e6))
        os._exit(0)


def forked_children() -> None:
    """One that goes on stepping by mistake, as a dataloader worker might, and one that exits."""
    if os.fork() == 0:
        for n in range(1000, 1040):
            WRITER.step(n, loss=-1.0)
            with WRITER.phase("child"):
                time.sleep(0.05)
        sys.exit(0)
    if os.fork() == 0:
        sys.exit(3)


def hold_lock_asleep(seconds: float) -> None:
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


def hold_lock_spinning(seconds: float) -> None:
    re.match(r"(a+)+$", "a" * 60 + "b")


def spin_in_python(seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        pass


def close_to_tracers() -> None:
    """As a program that changed its user: only CAP_SYS_PTRACE may look into it (prctl(2))."""
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE


def fail(seconds: float) -> None:
    raise ValueError("no such batch")


def attach_again() -> None:
    LIFE.end()
    attach()
    WRITER.last_words("exit", "said by the second record")


def become_another_program(seconds: float) -> None:
    os.execv(sys.executable, [sys.executable, "-c", f"import time; time.sleep({seconds})"])


def stay_in_phase(seconds: float) -> None:
    with WRITER.phase("checkpoint"):
        time.sleep(seconds)


FAULTS: dict[str, Callable[[float], object]] = {
    "": lambda _: None,
    "none": lambda _: None,
    "closed-sleep": time.sleep,
    "closed-gil-armed": hold_lock_asleep,
    "gil-sleep": hold_lock_asleep,
    "gil-sleep-armed": hold_lock_asleep,
    "gil-spin": hold_lock_spinning,
    "spin": spin_in_python,
    "sleep": time.sleep,
    "blocked": block_in_kernel,
    "sigkill": lambda _: os.kill(os.getpid(), signal.SIGKILL),
    "sigstop": lambda _: os.kill(os.getpid(), signal.SIGSTOP),
    "exception": fail,
    "os-exit": lambda _: os._exit(5),
    "sys-exit": lambda _: sys.exit(4),
    "segfault": lambda _: ctypes.string_at(0),
    "fork": lambda _: forked_children(),
    "reattach": lambda _: attach_again(),
    "exec": become_another_program,
    "detach": lambda _: LIFE.end(),
    "phase": stay_in_phase,
}


def train(fault: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    done = False
    for n in range(10**9):
        if time.monotonic() > deadline:
            return
        time.sleep(0.05)
        WRITER.step(n, loss=1 / (n + 1))
        if not done and n >= AT and is_ready(fault):
            done = True
            FAULTS[fault](seconds)


def is_ready(fault: str) -> bool:
    return not fault.endswith("-armed") or WRITER.number(record.WATCHDOG_OFFSET) != 0


def attach() -> None:
    global WRITER, LIFE
    WRITER = ProgressWriter.open(who.resolve())
    LIFE = lifecycle.watch_over(WRITER)


def in_child(fault: str, seconds: float) -> None:
    """As a child of multiprocessing, which ends without atexit."""
    attach()
    train(fault, seconds)


def main() -> None:
    fault, seconds = sys.argv[1], float(sys.argv[2])
    if fault.startswith("mp-"):
        context = multiprocessing.get_context("fork")
        child = context.Process(target=in_child, args=(fault[3:], seconds))
        child.start()
        print(child.pid, flush=True)
        child.join()
        return
    if fault == "thread":
        thread = threading.Thread(target=in_child, args=("", seconds))
        thread.start()
        thread.join()
        return
    if fault == "silent":
        time.sleep(seconds)
        return
    attach()
    if fault.startswith("closed"):
        close_to_tracers()
    train(fault, seconds)


if __name__ == "__main__":
    main()

"""What a process does to itself when the plan tells it to: ways to stand still, and to end."""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

x_AGES = 86_400


class x_Culprit(Protocol):
    """Who does it: ``rank`` tells one from the other, ``variant`` is one of several forms."""

    rank: int

    @property
    def variant(self) -> int: ...


def x_sleep(trouble: x_Culprit) -> None:
    time.sleep(x_AGES)


def x_error(trouble: x_Culprit) -> None:
    if trouble.variant % 2:
        raise ValueError("the batch holds a negative label")
    [][trouble.rank]


def x_kill(trouble: x_Culprit) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def x_stop(trouble: x_Culprit) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def x_hold(trouble: x_Culprit) -> None:
    # PyDLL keeps the GIL while the function runs.
    library = ctypes.PyDLL(None)
    if trouble.variant % 2:
        library.poll(None, 0, -1)
    else:
        library.sleep(x_AGES)


def x_hold_spinning(trouble: x_Culprit) -> None:
    if trouble.variant % 2:
        re.match(r"(a|aa)+$", "a" * 200 + "b")
    else:
        sum(itertools.repeat(1, 1 << 60))


def x_deadlock(trouble: x_Culprit) -> None:
    first, second = threading.Lock(), threading.Lock()
    taken = threading.Event()

    def cross() -> None:
        with second:
            taken.set()
            with first:
                pass

    with first:
        if trouble.variant % 2:
            threading.Thread(target=cross, daemon=True).start()
            taken.wait()
            with second:
                pass
        else:
            first.acquire()


def x_fifo(trouble: x_Culprit) -> None:
    path = Path(f"shard-{trouble.rank}")
    os.mkfifo(path)
    if trouble.variant % 2:
        path.read_bytes()
    else:
        os.read(os.open(path, os.O_RDWR), 4096)


def x_socket(trouble: x_Culprit) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    if trouble.variant % 2:
        client.recv(4096)
    else:
        client.makefile("rb").readline()


def x_kernel(trouble: x_Culprit) -> None:
    # The parent of a vfork is in state D until its child calls exec or ends.
    library = ctypes.PyDLL(None)
    if library.vfork() == 0:
        library.prctl(1, signal.SIGKILL)
        time.sleep(x_AGES)


def x_spin(trouble: x_Culprit) -> None:
    # hashlib lets the GIL go while it computes.
    hashlib.pbkdf2_hmac("sha256", b"password", b"salt", (1 << 31) - 1)


def x_loop(trouble: x_Culprit) -> None:
    numbers = {0: 1}
    while numbers:
        numbers[0] = numbers[0] * 3 % 1_000_003


def x_leave(trouble: x_Culprit) -> None:
    sys.exit(0)


x_OWN_WAYS: dict[str, Callable[[x_Culprit], None]] = {
    "sleep": x_sleep,
    "exception": x_error,
    "sigkill": x_kill,
    "sigstop": x_stop,
    "gil": x_hold,
    "gil-spin": x_hold_spinning,
    "deadlock": x_deadlock,
    "fifo": x_fifo,
    "socket": x_socket,
    "kernel": x_kernel,
    "spin": x_spin,
    "loop": x_loop,
    "leave": x_leave,
}

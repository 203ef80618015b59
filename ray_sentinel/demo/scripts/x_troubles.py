"""What a rank does to itself when the plan tells it to."""

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
from typing import Any

import torch

x_AGES = 86_400


class x_Trouble:
    """The plan of one rank: what to do to itself, where and when."""

    def __init__(self, plan: dict[str, Any], rank: int) -> None:
        self.plan, self.rank = plan, rank
        self.how: str = plan["how"].get(str(rank), "")

    def x_at(self, place: str, step: int) -> None:
        """Get into trouble if this is the place and the step for it."""
        here = place == self.plan["place"] and step == self.plan["step"]
        if here and self.how and self.how not in x_CHANGES:
            self.x_note()
            x_WAYS[self.how](self)

    def x_change(self, step: int, calls: list[Any], apart: tuple[int, ...]) -> list[Any]:
        """The step's collectives, some of them changed."""
        if step != self.plan["step"] or self.how not in x_CHANGES:
            return calls
        self.x_note()
        which = self.plan["variant"] % (len(calls) - 1) + self.plan["first_call"]
        if self.how == "order" and which in apart:
            which += 1
        return x_CHANGES[self.how](calls, min(which, len(calls) - 1))

    def x_note(self) -> None:
        """The moment, so that the time to the verdict is known."""
        Path(f"began-{self.rank}").write_text(repr(time.time()))

    @property
    def variant(self) -> int:
        return int(self.plan["variant"])


def x_skip(calls: list[Any], which: int) -> list[Any]:
    return calls[:which] + calls[which + 1 :]


def x_swap(calls: list[Any], which: int) -> list[Any]:
    other = which + 1 if which + 1 < len(calls) else which - 1
    changed = list(calls)
    changed[which], changed[other] = changed[other], changed[which]
    return changed


def x_resize(calls: list[Any], which: int) -> list[Any]:
    call, tensor = calls[which]
    # Of a few elements, twice as many may still travel alike.
    larger = torch.cat([tensor] * (2 + 512 // len(tensor)))
    return [*calls[:which], (call, larger), *calls[which + 1 :]]


def x_retype(calls: list[Any], which: int) -> list[Any]:
    call, tensor = calls[which]
    return [*calls[:which], (call, tensor.double()), *calls[which + 1 :]]


def x_sleep(trouble: x_Trouble) -> None:
    time.sleep(x_AGES)


def x_error(trouble: x_Trouble) -> None:
    if trouble.variant % 2:
        raise ValueError("the batch holds a negative label")
    [][trouble.rank]


def x_kill(trouble: x_Trouble) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def x_stop(trouble: x_Trouble) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def x_hold(trouble: x_Trouble) -> None:
    # PyDLL keeps the GIL while the function runs.
    library = ctypes.PyDLL(None)
    if trouble.variant % 2:
        library.poll(None, 0, -1)
    else:
        library.sleep(x_AGES)


def x_hold_spinning(trouble: x_Trouble) -> None:
    if trouble.variant % 2:
        re.match(r"(a|aa)+$", "a" * 200 + "b")
    else:
        sum(itertools.repeat(1, 1 << 60))


def x_deadlock(trouble: x_Trouble) -> None:
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


def x_fifo(trouble: x_Trouble) -> None:
    path = Path(f"shard-{trouble.rank}")
    os.mkfifo(path)
    if trouble.variant % 2:
        path.read_bytes()
    else:
        os.read(os.open(path, os.O_RDWR), 4096)


def x_socket(trouble: x_Trouble) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    if trouble.variant % 2:
        client.recv(4096)
    else:
        client.makefile("rb").readline()


def x_kernel(trouble: x_Trouble) -> None:
    # The parent of a vfork is in state D until its child calls exec or ends.
    library = ctypes.PyDLL(None)
    if library.vfork() == 0:
        library.prctl(1, signal.SIGKILL)
        time.sleep(x_AGES)


def x_spin(trouble: x_Trouble) -> None:
    # hashlib lets the GIL go while it computes.
    hashlib.pbkdf2_hmac("sha256", b"password", b"salt", (1 << 31) - 1)


def x_loop(trouble: x_Trouble) -> None:
    numbers = {0: 1}
    while numbers:
        numbers[0] = numbers[0] * 3 % 1_000_003


class x_Numbers(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 2:
            time.sleep(x_AGES)
        return torch.ones(4) * index


def x_loader(trouble: x_Trouble) -> None:
    for _ in torch.utils.data.DataLoader(x_Numbers(), num_workers=1 + trouble.variant % 2):
        pass


def x_leave(trouble: x_Trouble) -> None:
    sys.exit(0)


class x_Left(Exception):
    """The rank leaves the training loop, and goes on behind it."""


def x_break(trouble: x_Trouble) -> None:
    raise x_Left


x_CHANGES: dict[str, Callable[[list[Any], int], list[Any]]] = {
    "skip": x_skip,
    "order": x_swap,
    "shape": x_resize,
    "dtype": x_retype,
}

x_WAYS: dict[str, Callable[[x_Trouble], None]] = {
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
    "loader": x_loader,
    "leave": x_leave,
    "leave-loop": x_break,
}

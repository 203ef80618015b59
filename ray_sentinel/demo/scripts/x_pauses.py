"""What takes long in a healthy training."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist


class x_Slow(io.RawIOBase):
    """A file on storage that takes its time."""

    def __init__(self, path: Path, writes_per_second: float) -> None:
        self.file = path.open("wb")
        self.pause = 1 / writes_per_second

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        time.sleep(self.pause)
        return self.file.write(data)  # type: ignore[call-overload, no-any-return]


def x_save(rank: int, seconds: float) -> None:
    """Rank 0 saves, the others wait for it."""
    if rank == 0:
        state = {f"layer{n}": torch.ones(64) for n in range(200)}
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            torch.save(state, x_Slow(Path("saved.pt"), 100.0))
    dist.barrier()


def x_write(rank: int, seconds: float) -> None:
    """Rank 0 writes its parts one after the other, each to the disk, with code of its own."""
    if rank == 0:
        end = time.monotonic() + seconds
        with open("parts.bin", "wb") as file:
            while time.monotonic() < end:
                file.write(os.urandom(1 << 20))
                file.flush()
                os.fsync(file.fileno())
                file.seek(0)
                time.sleep(0.3)
    dist.barrier()


def x_score(seconds: float) -> float:
    total, end = 0.0, time.monotonic() + seconds
    while time.monotonic() < end:
        batch = torch.randn(512, 512)
        total += float((batch @ batch).tanh().mean())
        time.sleep(0.05)
    return total


def x_evaluate_all(rank: int, seconds: float) -> None:
    """Every rank evaluates its share, without a collective until the end."""
    score = torch.tensor([x_score(seconds)])
    dist.all_reduce(score)


def x_evaluate_one(rank: int, seconds: float) -> None:
    """Rank 0 evaluates, the others wait for it."""
    if rank == 0:
        x_score(seconds)
    dist.barrier()


x_PAUSES: dict[str, Callable[[int, float], None]] = {
    "save": x_save,
    "write": x_write,
    "evaluate-all": x_evaluate_all,
    "evaluate-one": x_evaluate_one,
}

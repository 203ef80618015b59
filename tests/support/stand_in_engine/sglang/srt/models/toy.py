"""A model over two ranks."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist


def forward(rank: int, stuck: int) -> None:
    """One token, which takes some milliseconds, as on a device; rank ``stuck`` does not come out of
    it."""
    time.sleep(600 if rank == stuck else 0.005)
    part = torch.ones(64, 64) @ torch.ones(64, 64)
    dist.all_reduce(part)

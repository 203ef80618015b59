"""A model over two ranks."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist


def forward(rank: int, stuck: int) -> None:
    """One token; rank ``stuck`` does not come out of it."""
    if rank == stuck:
        time.sleep(600)
    part = torch.ones(64, 64) @ torch.ones(64, 64)
    dist.all_reduce(part)

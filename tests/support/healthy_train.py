"""A healthy training over gloo, with one thing in it that takes long. argv: what, seconds, steps.

``what``: nothing, checkpoint (in its phase), long-step, dataloader (real worker processes).
"""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

import ray_sentinel

WHEN = 15
"""The step in which it happens."""


class Numbers(torch.utils.data.Dataset[torch.Tensor]):
    """So many numbers, slowly."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.2)
        return torch.ones(8) * index


def main() -> None:
    what, seconds, steps = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", timeout=timedelta(minutes=10))
    sentinel = ray_sentinel.attach(job=os.environ.get("TEST_JOB"))
    if what == "dataloader":
        batches = iter(torch.utils.data.DataLoader(Numbers(steps), num_workers=2))
    for step in range(steps):
        if what == "dataloader":
            next(batches)
        else:
            time.sleep(seconds if (what, step, rank) == ("long-step", WHEN, 1) else 1.0)
        dist.all_reduce(torch.ones(100))
        sentinel.step(step, loss=1 / (step + 1))
        if what == "checkpoint" and step == WHEN:
            with sentinel.phase("checkpoint"):
                time.sleep(seconds if rank == 0 else 0)
                dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

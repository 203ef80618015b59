"""A gloo job that saves every five steps; rank 1 of its first attempt falls asleep in step 33.

torchrun --nproc-per-node 2 hanging_train.py FOLDER STEPS CHECKPOINT
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

SLEEPS_AT = 33


def main() -> None:
    folder, steps, resume = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    begin = torch.load(Path(resume) / "model.pt")["step"] if resume else 0
    for step in range(begin + 1, steps + 1):
        time.sleep(0.2)
        if (rank, step, os.environ["RAY_SENTINEL_ATTEMPT"]) == (1, SLEEPS_AT, "0"):
            time.sleep(600)
        total = torch.ones(100)
        dist.all_reduce(total)
        if rank == 0:
            print(f"step {step} loss {1 / step:.4f}", flush=True)
        if rank == 0 and step % 5 == 0:
            partial = folder / f"tmp-step_{step}"
            partial.mkdir(parents=True)
            torch.save({"step": step, "total": total}, partial / "model.pt")
            partial.rename(folder / f"step_{step}")
    # Without it gloo's threads now and then abort the interpreter's exit.
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

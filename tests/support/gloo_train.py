"""A training over gloo as torchrun starts it, without a line of ray_sentinel. argv: folder.

After some steps each rank leaves its pid in ``folder/world-SIZE/rank-RANK``. Where
``folder/stuck-RANK`` appears, that rank falls asleep.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist


def main() -> None:
    folder = Path(sys.argv[1])
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    world = folder / f"world-{dist.get_world_size()}"
    world.mkdir(exist_ok=True)
    for step in range(10_000):
        time.sleep(0.2)
        if (folder / f"stuck-{rank}").exists():
            time.sleep(600)
        dist.all_reduce(torch.ones(100))
        if step == 3:
            (world / f"rank-{rank}").write_text(str(os.getpid()))


if __name__ == "__main__":
    main()

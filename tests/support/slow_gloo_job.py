"""A real data-parallel training on gloo, of which one rank may be slow; leaves its recorders.

As a program it is all ranks, forked from one: ``slow_gloo_job.py WORLD STEPS SLOW FACTOR NOISE SEED
FOLDER``. The work of a step is time (sleeping, not computing), so that eight ranks fit on two CPUs.
Each rank leaves ``FOLDER/trace_RANK.json``.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import subprocess
import sys
import time
from pathlib import Path

STEP_SECONDS = 0.1
DEADLINE = 120.0


def run(
    folder: Path, *, slow: int = -1, factor: float = 1.0, noise: float = 0.0, seed: int = 0,
    world: int = 8, steps: int = 30,
) -> dict[int, bytes]:  # fmt: skip
    """Run a job; the ranks' dumps in JSON."""
    arguments = [world, steps, slow, factor, noise, seed, folder]
    environ = {
        **os.environ,
        "TORCH_FR_BUFFER_SIZE": "2000",
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    subprocess.run(
        [sys.executable, "-W", "ignore", __file__, *map(str, arguments)],
        env=environ,
        stderr=subprocess.DEVNULL,
        timeout=DEADLINE,
        check=True,
    )
    return {rank: (folder / f"trace_{rank}.json").read_bytes() for rank in range(world)}


def work(
    rank: int, *, slow: int, factor: float, noise: float, seed: int, steps: int = 30
) -> list[float]:
    """How long one rank works in each step, in seconds."""
    dice = random.Random(seed * 1000 + rank)
    usual = STEP_SECONDS * (factor if rank == slow else 1.0)
    return [usual * dice.uniform(1.0 - noise, 1.0 + noise) for _ in range(steps)]


def train(rank: int, world: int, steps: int, slow: int, factor: float, noise: float, seed: int,
          folder: str) -> None:  # fmt: skip
    """One rank."""
    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import _dump_fr_trace_json

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world
    )
    gradients = [torch.ones(1000) for _ in range(3)]
    works = work(rank, slow=slow, factor=factor, noise=noise, seed=seed, steps=steps)
    for seconds in works:
        time.sleep(seconds)
        for gradient in gradients:
            dist.all_reduce(gradient)
    Path(folder, f"trace_{rank}.json").write_bytes(_dump_fr_trace_json())
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    world, steps, slow, factor, noise, seed, folder = sys.argv[1:]
    import torch.distributed  # noqa: F401  # once, before the fork

    context = multiprocessing.get_context("fork")
    ranks = [
        context.Process(
            target=train,
            args=(
                rank,
                *map(int, (world, steps, slow)),
                *map(float, (factor, noise)),
                int(seed),
                folder,
            ),
        )
        for rank in range(int(world))
    ]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    if any(process.exitcode for process in ranks):
        raise SystemExit("a rank failed")


if __name__ == "__main__":
    main()

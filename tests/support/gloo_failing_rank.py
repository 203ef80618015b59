"""One rank of ``gloo_failing_job``.

Rank ``WRONG`` makes a wrong call in step ``STEPS``, so that all ranks fail.
"""

from __future__ import annotations

import time
from pathlib import Path

WRONG = 4
STEPS = 16
LATE = (0, 5)
"""Ranks that come to the all-to-all when the rank with the wrong call is gone: they fail, too."""


def train(way: str, rank: int, world: int, folder: Path) -> None:
    """Each step sums over the row (two ranks), then over the column (all even, or all odd).

    In the way "routed", an all-to-all comes first, and the wrong call is made there.
    """
    import torch
    import torch.distributed as dist

    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world
    )
    columns = [dist.new_group(list(range(first, world, 2))) for first in range(2)]
    rows = [dist.new_group([first, first + 1]) for first in range(0, world, 2)]
    for step in range(STEPS + 2):
        if way == "routed":
            if step == STEPS and rank in LATE:
                time.sleep(1.0)
            sent = torch.ones(world * (128 if (rank, step) == (WRONG, STEPS) else 64))
            dist.all_to_all_single(torch.empty_like(sent), sent)
        row, column = torch.ones(512), torch.ones(2048)
        if way != "routed" and (rank, step) == (WRONG, STEPS):
            row, column = {
                "shape": (row, torch.ones(4096)),
                "dtype": (row, column.double()),
                "small": (row, column[:1024]),
                "row": (torch.ones(1024), column),
                "rowsmall": (row[:256], column),
            }[way]
        dist.all_reduce(row, group=rows[rank // 2])
        dist.all_reduce(column, group=columns[rank % 2])
    dist.barrier()


def run(way: str, rank: int, world: int, folder: Path) -> None:
    """Train until the wrong call ends it; leaves ``FOLDER/trace_RANK.json`` at an exception."""
    try:
        train(way, rank, world, folder)
    except RuntimeError:
        from torch._C._distributed_c10d import _dump_fr_trace_json

        (folder / f"trace_{rank}.json").write_bytes(_dump_fr_trace_json())
        raise

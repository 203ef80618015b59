"""Real torch jobs on gloo in which rank 4 makes a wrong call, so that all ranks fail.

As a program it is one rank: ``gloo_failing_job.py WAY RANK WORLD FOLDER``. Ranks that an exception
ends leave ``FOLDER/trace_RANK.json``; a rank that is sent more than it had asked for is aborted by
gloo, and leaves nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType

WORLD = 8
WRONG = 4
STEPS = 16
DEADLINE = 120.0


def run(way: str, folder: Path, world: int = WORLD) -> tuple[dict[int, bytes], list[int]]:
    """Run a job; the dumps of those that left one, and the ranks that were aborted."""
    environ = {
        **os.environ,
        "TORCH_FR_BUFFER_SIZE": "2000",
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", __file__, way, str(rank), str(world), folder],
            env=environ,
            stderr=subprocess.DEVNULL,
        )
        for rank in range(world)
    ]
    try:
        codes = [process.wait(DEADLINE) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    dumps = {rank: folder / f"trace_{rank}.json" for rank in range(world)}
    return (
        {rank: path.read_bytes() for rank, path in dumps.items() if path.exists()},
        [rank for rank, code in enumerate(codes) if code < 0],
    )


def train(way: str, rank: int, world: int, folder: Path) -> None:
    """Each step sums over the row (two ranks), then over the column (all even, or all odd)."""
    import torch
    import torch.distributed as dist

    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world
    )
    columns = [dist.new_group(list(range(first, world, 2))) for first in range(2)]
    rows = [dist.new_group([first, first + 1]) for first in range(0, world, 2)]
    for step in range(STEPS + 2):
        row, column = torch.ones(512), torch.ones(2048)
        if (rank, step) == (WRONG, STEPS):
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


def main() -> None:
    way, rank, world, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])

    def leave(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        from torch._C._distributed_c10d import _dump_fr_trace_json

        (folder / f"trace_{rank}.json").write_bytes(_dump_fr_trace_json())

    sys.excepthook = leave
    train(way, rank, world, folder)


if __name__ == "__main__":
    main()

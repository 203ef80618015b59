"""Real torch jobs on gloo in which one rank makes a wrong call, so that all ranks fail.

Ranks that an exception ends leave ``FOLDER/trace_RANK.json``; a rank that is sent more than it had
asked for is aborted by gloo, and leaves nothing.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.gloo_failing_rank import WRONG as WRONG
from tests.support.gloo_failing_rank import run as run_rank
from tests.support.torch_ranks import TorchRanks

WORLD = 8
DEADLINE = 120.0


def run(way: str, folder: Path) -> tuple[dict[int, bytes], list[int]]:
    """Run a job; the dumps of those that left one, and the ranks that were aborted."""
    with TorchRanks(run_rank, way, WORLD, folder) as ranks:
        codes = ranks.wait(DEADLINE)
    dumps = {rank: folder / f"trace_{rank}.json" for rank in range(WORLD)}
    return (
        {rank: path.read_bytes() for rank, path in dumps.items() if path.exists()},
        [rank for rank, code in enumerate(codes) if code < 0],
    )

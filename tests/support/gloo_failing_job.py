"""Real torch jobs on gloo in which one rank makes a wrong call, so that all ranks fail.

Ranks that an exception ends leave ``FOLDER/trace_RANK.json``; a rank that is sent more than it had
asked for is aborted by gloo, and leaves nothing.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.gloo_failing_rank import WRONG as WRONG
from tests.support.gloo_job import start

WORLD = 8
DEADLINE = 120.0


def run(way: str, folder: Path) -> tuple[dict[int, bytes], list[int]]:
    """Run a job; the dumps of those that left one, and the ranks that were aborted."""
    ranks = start(Path(__file__).with_name("gloo_failing_rank.py"), way, WORLD, folder)
    try:
        codes = [process.wait(DEADLINE) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    dumps = {rank: folder / f"trace_{rank}.json" for rank in range(WORLD)}
    return (
        {rank: path.read_bytes() for rank, path in dumps.items() if path.exists()},
        [rank for rank, code in enumerate(codes) if code < 0],
    )

"""Ranks of torch jobs, forked from one process that has imported torch.

An import of torch takes two seconds of a processor, and the first dump of a recorder with stacks
imports ``torch._inductor``, which takes as long: more than all else that such a rank does. Ranks
that an agent is to find must be started as programs instead: these have the command line and the
first environment of the process that they were forked from.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.context
import os
import time
from collections.abc import Callable
from pathlib import Path

ENVIRON = {"TORCH_FR_BUFFER_SIZE": "2000", "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
"""Of each rank: its flight recorder is on."""

IMPORTED = ["torch.distributed", "torch._inductor.codecache"]

Rank = Callable[[str, int, int, Path], None]
"""What a rank does: gets the job's way, its rank, the world's size and the job's folder."""


class TorchRanks:
    """All ranks of one job; used as a context, at whose end they are killed."""

    def __init__(self, rank: Rank, way: str, world: int, folder: Path) -> None:
        """``rank`` is a function at the top of its module."""
        context = multiprocessing.get_context("forkserver")
        # Heeded when the first of all ranks is started.
        context.set_forkserver_preload(IMPORTED)
        self._ranks: list[multiprocessing.context.ForkServerProcess] = [
            context.Process(target=_run, args=(rank, way, number, world, folder))
            for number in range(world)
        ]

    def __enter__(self) -> TorchRanks:
        for rank in self._ranks:
            rank.start()
        return self

    def wait(self, seconds: float) -> list[int]:
        """How each rank ended: its exit status, or minus the signal that ended it.

        Raises TimeoutError where one is left.
        """
        deadline = time.monotonic() + seconds
        for rank in self._ranks:
            rank.join(max(0.0, deadline - time.monotonic()))
        codes = [rank.exitcode for rank in self._ranks if rank.exitcode is not None]
        if len(codes) < len(self._ranks):
            raise TimeoutError(f"{len(self._ranks) - len(codes)} ranks did not end")
        return codes

    def __exit__(self, *_: object) -> None:
        for rank in self._ranks:
            rank.kill()
        for rank in self._ranks:
            rank.join()


def _run(rank: Rank, way: str, number: int, world: int, folder: Path) -> None:
    os.environ.update(ENVIRON)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    rank(way, number, world, folder)

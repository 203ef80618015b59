"""Python's garbage collection in the coordinator, paced so that it holds nothing up for long.

A full collection examines every object that may be part of a cycle, while no other thread runs:
730,000 objects with 8,192 ranks on 1,024 nodes, nearly all of them series of nodes that stay, in
0.2 s of CPU. By itself Python does that each time a quarter more objects have come, which reports
bring within seconds. But reference counts free almost all of ours, because records have no cycles;
what is left is the odd exception or future. So full collections happen here only, once a minute,
and what survives one is left out of those that follow: 58,000 objects and 0.03 s remain. Once an
hour everything is examined, in case what was left out has become garbage in a cycle.
"""

from __future__ import annotations

import gc

COLLECT_SECONDS = 60.0
"""Seconds between two calls of ``step``."""
WHOLE_TURNS = 60
"""After so many turns everything is examined."""
_NEVER = 1 << 30
"""More collections of younger objects than there will be, so that no full one follows them."""


class GarbageCollection:
    """Makes the process's full collections. Call ``step`` every ``COLLECT_SECONDS``."""

    def __init__(self) -> None:
        self._turn = 0

    def step(self) -> None:
        """Collect; with the first call only leave out what there is, which are mostly modules."""
        if self._turn == 0:
            young, middle, *_ = gc.get_threshold()
            gc.set_threshold(young, middle, _NEVER)
        else:
            if self._turn % WHOLE_TURNS == 0:
                gc.unfreeze()
            gc.collect()
        gc.freeze()
        self._turn += 1


def collect_everything() -> None:
    """Collect also what full collections have left out; it takes as long as one of Python's own."""
    gc.unfreeze()
    gc.collect()

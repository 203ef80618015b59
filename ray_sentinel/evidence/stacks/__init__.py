"""Stacks: from any tool's output to what each process does.

``parse`` reads py-spy (text, native, JSON), gdb, cuda-gdb, kernel stacks and faulthandler into
``model.stacks.StackTrace``; ``classify_process`` turns the traces of one process into a
``StackFact``; ``waitgraph.stacks`` turns rounds of facts into culprits with the evidence.
"""

from ray_sentinel.evidence.stacks.classify import (
    awaits_child,
    awaits_network,
    awaits_pool,
    by_process,
    classify,
    classify_process,
    rests_in_coroutines,
    with_kernels,
)
from ray_sentinel.evidence.stacks.compare import (
    awaiting_programs,
    children_worked,
    movement,
    movements,
    woken,
)
from ray_sentinel.evidence.stacks.frames.informative_threads import StackReader, informative_thread
from ray_sentinel.evidence.stacks.readers.formats import parse
from ray_sentinel.evidence.stacks.tree import StackClass, classes, merge, render, who

__all__ = [
    "StackClass",
    "StackReader",
    "awaiting_programs",
    "awaits_child",
    "awaits_network",
    "awaits_pool",
    "by_process",
    "children_worked",
    "classes",
    "classify",
    "classify_process",
    "informative_thread",
    "merge",
    "movement",
    "movements",
    "parse",
    "render",
    "rests_in_coroutines",
    "who",
    "with_kernels",
    "woken",
]

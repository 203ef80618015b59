"""The node of a rank that a tool knows by its number in the job, or by where it runs.

Recorders know ranks by their numbers, NCCL RAS knows hosts, pids and GPUs. A rank whose process is
known has the node of that process (``facts.process_node``).
"""

from __future__ import annotations

from ray_sentinel.waitgraph.facts import WaitNode


def node_of_rank(rank: int) -> WaitNode:
    """The node of the rank with this number.

    >>> node_of_rank(3).key
    'rank 3'
    """
    return WaitNode("process", f"rank {rank}")


def node_at(host: str, pid: int, gpu: int | None = None) -> WaitNode:
    """The node of a process whose rank is not known; with a GPU, of its rank there.

    >>> node_at("node1", 42).key
    'node1:42'
    """
    return WaitNode("process", f"{host}:{pid}" + (f":gpu {gpu}" if gpu is not None else ""))

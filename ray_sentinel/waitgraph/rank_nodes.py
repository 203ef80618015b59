"""The node of a rank, the same whichever tool tells of it.

Stacks know processes, recorders know ranks by their numbers in the job, and NCCL RAS knows hosts,
pids and GPUs. Their facts lead to one another only if they use one node for one rank.
"""

from __future__ import annotations

from collections.abc import Mapping

from ray_sentinel.model.identity import ProcessId
from ray_sentinel.waitgraph.facts import WaitNode, process_node


class RankNodes:
    """The nodes of the ranks of one job. ``processes`` are those whose process is known, by their
    numbers."""

    def __init__(self, processes: Mapping[int, ProcessId] | None = None) -> None:
        self._processes = processes or {}
        self._at = {(one.host, one.pid): one for one in self._processes.values()}

    def of_rank(self, rank: int) -> WaitNode:
        """The node of a rank with this number.

        >>> RankNodes().of_rank(3).key
        'rank 3'
        """
        process = self._processes.get(rank)
        return process_node(process) if process else WaitNode("process", f"rank {rank}")

    def of_process(self, host: str, pid: int, gpu: int | None = None) -> WaitNode:
        """The node of a process whose number is not known; with a GPU, of its rank there.

        >>> RankNodes().of_process("node1", 42).key
        'node1:42'
        """
        if process := self._at.get((host, pid)):
            return process_node(process)
        return WaitNode("process", f"{host}:{pid}" + (f":gpu {gpu}" if gpu is not None else ""))

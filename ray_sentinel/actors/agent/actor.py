"""The agent as Ray knows it: the coordinator's calls, answered by the parts of a ``NodeMonitor``.

Every process that creates the actor or looks it up imports this module. So it is light: what an
agent works with is imported by its constructor, only in the actor's own process.
"""

from __future__ import annotations

import os

from ray_sentinel.actors.messages import (
    CaptureRequest,
    DumpRequest,
    OutputRequest,
    Outputs,
    pack_masked,
    unpack,
)
from ray_sentinel.model.identity import Rank

CALLS_AT_ONCE = 16
"""How many calls are answered at once, each on a thread of its own. A constructor runs on the main
thread only in an actor that is not ``async``, and only there can signals be handled."""


class Agent:
    """Created by the coordinator's reconciler, pinned by the node's placement group.

    Arguments and answers are MessagePack of the records in ``messages``; answers leave the node
    masked. A call may wait 0.2 s: see ``rest_between_calls``.
    """

    def __init__(self, config: bytes) -> None:
        from ray_sentinel.actors.agent.ray_node import rest_between_calls, started_monitor

        self._monitor = started_monitor(config)
        rest_between_calls()

    def ping(self) -> int:
        """The process id, as proof that the agent lives."""
        return os.getpid()

    def sample(self, ranks: bytes) -> bytes:
        """One round of non-intrusive stacks of some ranks: ``Sampled``."""
        wanted = unpack(ranks, tuple[Rank, ...])
        return pack_masked(self._monitor.evidence.sample(wanted))

    def stacks(self, pids: bytes) -> bytes:
        """One round of non-intrusive stacks of some processes, by pid: ``Sampled``."""
        return pack_masked(self._monitor.evidence.stacks(unpack(pids, tuple[int, ...])))

    def connections(self, pids: bytes) -> bytes:
        """The connections of some processes on which an answer is due: ``Connections``."""
        return pack_masked(self._monitor.evidence.connections(unpack(pids, tuple[int, ...])))

    def runtime_environments(self) -> bytes:
        """The runtime environments that this node's Ray is building for tasks and actors:
        ``NodeEnvironments``."""
        return pack_masked(self._monitor.environments.poll())

    def flight_recorder(self, request: bytes) -> bytes:
        """The flight recorders of some ranks, for a ``DumpRequest``: ``Dumps``."""
        wanted = unpack(request, DumpRequest)
        return pack_masked(self._monitor.evidence.dumps.gather(wanted))

    def rank_output(self, request: bytes) -> bytes:
        """What some processes last wrote, for an ``OutputRequest``: ``Outputs``."""
        wanted = unpack(request, OutputRequest)
        found = self._monitor.evidence.outputs.gather(wanted.writers, wanted.most_bytes)
        return pack_masked(Outputs(found=found))

    def nccl_ras(self, ranks: bytes) -> bytes:
        """The answers of NCCL's RAS service for some ranks, queried from this node:
        ``RasPolls``."""
        wanted = unpack(ranks, tuple[Rank, ...])
        return pack_masked(self._monitor.evidence.nccl_ras(wanted))

    def capture(self, request: bytes) -> bytes:
        """Run all tools against some ranks, for a ``CaptureRequest``: ``NodeCapture``."""
        wanted = unpack(request, CaptureRequest)
        return pack_masked(self._monitor.evidence.capture(wanted))

    def inspect(self) -> bytes:
        """The current state of this node: a ``NodeView``."""
        return pack_masked(self._monitor.inspect())

    def install_plugin(self, name: str, data: bytes) -> str:
        """Put a collector's file on this node. Returns its path. Raises InputError."""
        return str(self._monitor.runner.install_plugin(name, data))

    def close(self) -> list[str]:
        """End what was started here. Returns what could not be ended."""
        return self._monitor.close()

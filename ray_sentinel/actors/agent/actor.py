"""The agent as Ray and the coordinator know it: what it can be asked, and nothing of how.

The coordinator imports this class to make the actors; what it does is ``node_agent``, imported in
the actor's own process only.
"""

from __future__ import annotations

CALLS_AT_ONCE = 16
"""Each has a thread. A constructor runs on the main thread only in an actor that is not ``async``,
and only there can signals be handled."""


class Agent:
    """Made by the coordinator's reconciler, pinned by the node's placement group.

    Arguments and answers are MessagePack of the records in ``messages``. A call may wait 0.2 s:
    see ``rest``.
    """

    def __init__(self, config: bytes) -> None:
        from ray_sentinel.actors.agent.idle_throttle import rest_between_calls
        from ray_sentinel.actors.agent.node_agent import NodeAgent

        self._does = NodeAgent(config)
        self._rest = rest_between_calls()

    def ping(self) -> int:
        """The process id: proof of life."""
        return self._does.ping()

    def sample(self, ranks: bytes) -> bytes:
        """One round of harmless stacks of some ranks: ``Sampled``."""
        return self._does.sample(ranks)

    def flight_recorder(self, request: bytes) -> bytes:
        """The flight recorders of some ranks, a ``DumpRequest``: ``Dumps``."""
        return self._does.flight_recorder(request)

    def rank_output(self, request: bytes) -> bytes:
        """What some ranks wrote last, an ``OutputRequest``: ``Outputs``."""
        return self._does.rank_output(request)

    def nccl_ras(self, ranks: bytes) -> bytes:
        """What NCCL's RAS service says, asked from here for some ranks: ``RasPolls``."""
        return self._does.nccl_ras(ranks)

    def capture(self, request: bytes) -> bytes:
        """All tools against some ranks, a ``CaptureRequest``: ``Captured``."""
        return self._does.capture(request)

    def inspect(self) -> bytes:
        """This node looked at now: a ``NodeView``."""
        return self._does.inspect()

    def install_plugin(self, name: str, data: bytes) -> str:
        """Put a collector's file on this node; where it lies. Raises InputError."""
        return self._does.install_plugin(name, data)

    def close(self) -> list[str]:
        """End what was started here; returns what could not be ended."""
        return self._does.close()

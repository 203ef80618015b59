"""The agent as Ray and the coordinator know it: what it can be asked, and nothing of how.

The coordinator imports this class to make the actors; what it does is ``node_agent``, imported in
the actor's own process only.
"""

from __future__ import annotations


class Agent:
    """Made by the coordinator's reconciler, pinned by the node's placement group.

    Arguments and answers are MessagePack of the records in ``messages``.
    """

    def __init__(self, config: bytes) -> None:
        from ray_sentinel.actors.node_agent import NodeAgent

        self._does = NodeAgent(config)

    async def ping(self) -> int:
        """The process id: proof of life."""
        return self._does.ping()

    async def sample(self, ranks: bytes) -> bytes:
        """One round of harmless stacks of some ranks: ``Sampled``."""
        return await self._does.sample(ranks)

    async def flight_recorder(self, ranks: bytes) -> bytes:
        """The flight recorders of some ranks: ``Dumps``."""
        return await self._does.flight_recorder(ranks)

    async def nccl_ras(self, ranks: bytes) -> bytes:
        """What NCCL's RAS service says, asked from here for some ranks: ``RasPolls``."""
        return await self._does.nccl_ras(ranks)

    async def capture(self, request: bytes) -> bytes:
        """All tools against some ranks, a ``CaptureRequest``: ``Captured``."""
        return await self._does.capture(request)

    async def inspect(self) -> bytes:
        """This node looked at now: a ``NodeView``."""
        return await self._does.inspect()

    async def install_plugin(self, name: str, data: bytes) -> str:
        """Put a collector's file on this node; where it lies. Raises InputError."""
        return await self._does.install_plugin(name, data)

    async def close(self) -> list[str]:
        """End what was started here; returns what could not be ended."""
        return await self._does.close()

"""The coordinator as Ray and its callers know it: what it can be asked, and nothing of how.

Whoever looks the actor up by its name imports this class: each agent, each command, each deployer.
What it does is ``coordination``, imported in the actor's own process only; that costs 0.3 s of CPU
and 20 MB.
"""

from __future__ import annotations


class Coordinator:
    """Made by ``deployment.ensure`` as a detached actor; every method may be called by anyone.

    Answers are MessagePack of the model's records, so that other versions can read them.
    """

    def __init__(self, config: bytes, deployment: str, secret: bytes) -> None:
        from ray_sentinel.actors.coordinator.coordination import Coordination

        self._does = Coordination(config, deployment, secret)

    async def describe(self) -> bytes:
        """A ``Description``."""
        return self._does.describe()

    async def report(self, data: bytes) -> bytes:
        """Take an agent's ``Report``; returns a ``Receipt``. Raises UsageError if unreadable."""
        return self._does.report(data)

    async def status(self) -> bytes:
        """A ``Status``."""
        return await self._does.status()

    async def page_link(self) -> bytes:
        """The page's URL with its token, a text; empty where it is not served."""
        return self._does.page_link()

    async def nodes(self) -> bytes:
        """The watched nodes' lines: a list of ``NodeStatus``."""
        return self._does.nodes()

    async def agents(self) -> bytes:
        """A list of ``AgentInfo``."""
        return self._does.agents()

    async def incidents(self) -> bytes:
        """All confirmed incidents, oldest first: a list of ``Incident``."""
        return self._does.incidents()

    async def incident(self, incident_id: str) -> bytes:
        """One ``Incident``. Raises UsageError for an unknown id."""
        return self._does.incident(incident_id)

    async def history(self) -> bytes:
        """The embedded history as it is now: a file that ``diagnose`` reads."""
        return await self._does.history()

    async def dump(self, job: str = "", why: str = "asked by hand") -> bytes:
        """Capture a running job (all of them without a name) now.

        Returns the incidents that were made for it; empty where no such job runs.
        """
        return self._does.dump(job, why)

    async def restart_agent(self, node_id: str) -> bool:
        """Start a node's agent anew. False where there is none."""
        return await self._does.restart_agent(node_id)

    async def recall(self, node_id: str) -> None:
        """Watch a released node again: a rank has begun there."""
        self._does.recall(node_id)

    async def close(self) -> list[str]:
        """End the loops and write what waits; the caller kills the actor then."""
        return await self._does.close()

"""The coordinator as Ray and its callers know it: the calls, answered from its parts.

Every process that looks the actor up by its name imports this module: each agent, each command,
each deployer. So it is light: its parts are imported by the constructor, in the actor's own process
only; that costs 0.3 s of CPU and 20 MB.
"""

from __future__ import annotations

import asyncio
import logging

from ray_sentinel.actors.messages import pack
from ray_sentinel.errors import UsageError

log = logging.getLogger(__name__)


class Coordinator:
    """Created by ``deploy.ensure`` as a detached actor; any process may call every method.

    Answers are MessagePack of the model's records, so that other versions can read them.
    """

    def __init__(self, config: bytes, deployment: str, secret: bytes) -> None:
        from ray_sentinel.actors.coordinator.parts import CoordinatorParts

        self._parts = CoordinatorParts(config, deployment, secret)
        self._engine = self._parts.engine

    async def describe(self) -> bytes:
        """A ``Description``."""
        return pack(self._parts.description)

    async def report(self, data: bytes) -> bytes:
        """Take an ``AgentReport``, or a ``ReportDelta`` for one; returns a ``Receipt``. Raises
        UsageError if unreadable."""
        return pack(self._parts.report(data))

    async def report_together(self, reports: list[bytes]) -> list[bytes]:
        """``report`` for all reports that a relay has gathered. The receipts are in the same order;
        one for an unreadable report is empty."""
        receipts = []
        for data in reports:
            try:
                receipts.append(pack(self._parts.report(data, relayed=True)))
            except UsageError as error:
                log.warning("by a relay: %s", error)
                receipts.append(b"")
        return receipts

    async def status(self) -> bytes:
        """A ``Status``."""
        return pack(await asyncio.to_thread(self._parts.status))

    async def page_link(self) -> bytes:
        """The page's URL with its token, a text; empty if it is not served."""
        return pack(self._parts.page.link)

    async def agents(self) -> bytes:
        """A list of ``AgentInfo``."""
        return pack(self._parts.roster.agents(self._parts.clock.now()))

    async def incidents(self) -> bytes:
        """All confirmed incidents, oldest first: a list of ``Incident``."""
        return await asyncio.to_thread(lambda: pack(self._engine.incidents()))

    async def lanes(self) -> bytes:
        """A ``LanesReport``."""
        return pack(await asyncio.to_thread(self._parts.lanes))

    async def pulse(self) -> bytes:
        """A ``PulseReport``."""
        return pack(await asyncio.to_thread(self._parts.pulse))

    async def history(self) -> bytes:
        """The embedded history as it is now: a file that ``diagnose`` reads."""
        return await asyncio.to_thread(self._parts.history.image)

    async def dump(self, job: str = "", why: str = "asked by hand") -> bytes:
        """Capture a running job (all of them without a name) now.

        Returns the incidents that were made for it; empty if no such job runs.
        """
        return pack(await asyncio.to_thread(self._engine.dump, job, why))

    async def restart_agent(self, node_id: str) -> bool:
        """Restart a node's agent. False if there is none."""
        return await asyncio.to_thread(self._parts.fleet.restart, node_id)

    async def recall(self, node_id: str) -> None:
        """Watch a released node again, because a rank has begun there."""
        self._parts.fleet.recall(node_id, self._parts.clock.now())

    async def close(self) -> list[str]:
        """End the loops and write what is waiting; the caller then kills the actor."""
        await self._parts.close()
        return []

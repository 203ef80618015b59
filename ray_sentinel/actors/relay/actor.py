"""The relay as Ray and the agents know it.

With hundreds of nodes most of the coordinator's time goes into Ray's calls, one for each report.
So the agents of some 64 nodes report to one of them, and the relay there hands their reports on,
some together in one call. It reads none of them, and nothing is lost with it: an agent whose relay
does not answer reports to the coordinator itself.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from ray_sentinel.actors.names import COORDINATOR, NAMESPACE
from ray_sentinel.actors.relay.batches import ReportBatches

ANSWER_SECONDS = 4.5
"""Seconds that the coordinator has to answer: a little less than the agents wait for theirs."""


class Relay:
    """Made by the coordinator's reconciler in the placement group of its node's agent."""

    def __init__(self) -> None:
        from ray_sentinel.actors.deployment.environment import forget_identity
        from ray_sentinel.private_files import be_private

        be_private()
        forget_identity()
        self._batches = ReportBatches(self._send)
        self._coordinator: Any = None

    async def ping(self) -> int:
        """The process id: proof of life."""
        return os.getpid()

    async def report(self, data: bytes, urgent: bool = False) -> bytes:
        """Pass an ``AgentReport`` on; returns its ``Receipt``. Raises what the coordinator's call
        raises, and TimeoutError if it does not answer."""
        return await self._batches.add(data, urgent=urgent)

    async def _send(self, reports: list[bytes]) -> list[bytes]:
        import ray
        from ray.exceptions import RayError

        try:
            if self._coordinator is None:
                self._coordinator = await asyncio.to_thread(
                    ray.get_actor, COORDINATOR, namespace=NAMESPACE
                )
            answer = self._coordinator.report_together.remote(reports)
            receipts: list[bytes] = await asyncio.wait_for(answer, ANSWER_SECONDS)
        except (RayError, ValueError, asyncio.TimeoutError):
            # Restarting, or for good: it is looked up by name again.
            self._coordinator = None
            raise
        return receipts

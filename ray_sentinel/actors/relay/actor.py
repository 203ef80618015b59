"""The relay as Ray and the agents know it.

With hundreds of nodes most of the coordinator's time goes into Ray's calls, one for each report.
So the agents of some 64 nodes report to one of them, and the relay there hands their reports on,
some together in one call. It reads none of them, and nothing is lost with it: an agent whose relay
does not answer reports to the coordinator itself.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from ray_sentinel.actors.names import COORDINATOR, NAMESPACE

ANSWER_SECONDS = 4.5
"""Seconds that the coordinator has to answer: a little less than the agents wait for theirs."""
GATHER_SECONDS = 0.25
"""Most seconds that a report waits for others."""
MOST_BYTES = 90_000
"""Most bytes of one batch: Ray sends no more than 100 kB within a call."""

Send = Callable[[list[bytes]], Coroutine[Any, Any, list[bytes]]]


class ReportBatches:
    """Gathers reports to pass on together, and gives each the receipt that came for it. Used by one
    event loop."""

    def __init__(self, send: Send, gather_seconds: float = GATHER_SECONDS) -> None:
        """``send`` takes reports, and returns a receipt for each, in their order; whatever it
        raises is raised for all who wait for it."""
        self._send, self._gather_seconds = send, gather_seconds
        self._waiting: list[tuple[bytes, asyncio.Future[bytes]]] = []
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._sending: set[asyncio.Future[list[bytes]]] = set()

    async def add(self, report: bytes, *, urgent: bool) -> bytes:
        """The receipt for a report; an ``urgent`` one takes the waiting ones along."""
        loop = asyncio.get_running_loop()
        if self._waiting and self._bytes + len(report) > MOST_BYTES:
            self._flush()
        receipt: asyncio.Future[bytes] = loop.create_future()
        self._waiting.append((report, receipt))
        self._bytes += len(report)
        if urgent:
            self._flush()
        elif self._timer is None:
            self._timer = loop.call_later(self._gather_seconds, self._flush)
        return await receipt

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch, self._waiting, self._bytes = self._waiting, [], 0
        if batch:
            task = asyncio.get_running_loop().create_task(
                self._send([report for report, _ in batch])
            )
            # A loop keeps only a weak reference to its tasks.
            self._sending.add(task)
            task.add_done_callback(partial(self._sent, [receipt for _, receipt in batch]))

    def _sent(
        self, waiting: list[asyncio.Future[bytes]], task: asyncio.Future[list[bytes]]
    ) -> None:
        self._sending.discard(task)
        failed = task.exception()
        receipts = [] if failed else task.result()
        if failed is None and len(receipts) != len(waiting):
            failed = ValueError(f"{len(receipts)} receipts came for {len(waiting)} reports")
        for place, receipt in enumerate(waiting):
            if receipt.done():
                continue  # the caller has gone
            if failed is not None:
                receipt.set_exception(failed)
            else:
                receipt.set_result(receipts[place])


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

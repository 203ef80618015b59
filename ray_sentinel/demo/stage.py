"""What the demo and the fault suite ask of the coordinator: the calls that users' commands make."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import msgspec

from ray_sentinel.actors.deployment import deploy
from ray_sentinel.errors import SentinelError
from ray_sentinel.model.incident import Incident
from ray_sentinel.model.status import Status

POLL = 0.25
"""Seconds between two looks at the coordinator."""
AGENTS_SECONDS = 60.0
"""Seconds that the agents of all nodes may take to report."""
CALL_SECONDS = 30.0
"""Seconds to wait for one answer of the coordinator, on a machine with far too little CPU."""

MOST_CROWDED = 3.0
"""Greatest factor by which waits are extended on a crowded machine, so that they end on any
machine."""

ShowStatus = Callable[[Status | None, str], None]
"""Shows the newest status (None if there is none yet) and a note on what is awaited."""


def show_nothing(status: Status | None, note: str) -> None:
    """A ``ShowStatus`` for runs that nobody watches."""


def crowding() -> float:
    """How many times as long everything takes here as on a machine with a CPU for each program
    that wants one: 1 where there is room, at most ``MOST_CROWDED``."""
    load = os.getloadavg()[0] / len(os.sched_getaffinity(0))
    return min(MOST_CROWDED, max(1.0, load))


class Stage:
    """Polls the coordinator about one job. Other jobs may run, and have incidents of their own."""

    def __init__(self, ray: Any, show: ShowStatus = show_nothing) -> None:
        self._ray = ray
        self._show = show
        self.job = ""
        self.status: Status | None = None

    def poll(self, note: str) -> Status:
        """The newest status, shown with a note."""
        self.status = msgspec.msgpack.decode(self._ask("status"), type=Status)
        self._show(self.status, note)
        return self.status

    def incidents(self) -> list[Incident]:
        """Confirmed incidents of the job."""
        return [incident for incident in self.all_incidents() if incident.job == self.job]

    def all_incidents(self) -> list[Incident]:
        """Confirmed incidents of all jobs."""
        return msgspec.msgpack.decode(self._ask("incidents"), type=list[Incident])

    def until(self, seconds: float, note: str, ready: Callable[[], bool]) -> bool:
        """Poll until ``ready`` returns True, for at most ``seconds``, which are longer on a crowded
        machine. Returns whether it did."""
        left, last = seconds, time.monotonic()
        while not ready():
            now = time.monotonic()
            left, last = left - (now - last) / crowding(), now
            if left < 0:
                return False
            self.poll(note)
            time.sleep(POLL)
        return True

    def wait_for_agents(self, count: int) -> None:
        """Wait until ``count`` nodes are watched. Raises SentinelError if they are not in time."""
        note = "starting an agent on each node"
        if not self.until(AGENTS_SECONDS, note, lambda: self._nodes() >= count):
            raise SentinelError("not all nodes are watched: see `ray-sentinel status`")

    def _nodes(self) -> int:
        return len(self.status.nodes) if self.status else 0

    def _ask(self, method: str) -> bytes:
        handle = deploy.find(self._ray)
        return bytes(deploy.ask(self._ray, handle, method, seconds=CALL_SECONDS))

"""Agents whose nodes have asked NCCL's RAS."""

from __future__ import annotations

from collections.abc import Callable

from ray_sentinel.actors.coordinator.gathering.agents import Agents
from ray_sentinel.capture.ras import RasPolls


class PollingAgents(Agents):
    """Each of some nodes answers with its polls, whichever ranks are asked about."""

    def __init__(self, *polls: Callable[[], RasPolls]) -> None:
        self._polls = polls

    def ask(self, *_: object) -> tuple[dict[str, RasPolls], list[str]]:  # type: ignore[override]
        """What the nodes say, and no problems."""
        return {f"n{number}": poll() for number, poll in enumerate(self._polls)}, []

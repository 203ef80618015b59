"""The agent's way to the coordinator: by name, so that it outlives the coordinator's death."""

from __future__ import annotations

import logging

import ray
from ray.exceptions import GetTimeoutError, RayError

from ray_sentinel.actors.error_text import last_line
from ray_sentinel.actors.messages import AgentReport, Receipt, pack_masked, unpack
from ray_sentinel.actors.names import COORDINATOR, NAMESPACE

log = logging.getLogger(__name__)

ANSWER_SECONDS = 5.0
"""For the coordinator to acknowledge a report; it is sent again after that."""


class CoordinatorLink:
    """One report at a time. Used by one thread."""

    def __init__(self) -> None:
        self._handle: ray.actor.ActorHandle | None = None
        self._silent = False

    def send(self, report: AgentReport) -> Receipt | None:
        """Report, and wait for the receipt; None where there is no coordinator just now."""
        try:
            if self._handle is None:
                self._handle = ray.get_actor(COORDINATOR, namespace=NAMESPACE)
            answer = ray.get(
                self._handle.report.remote(pack_masked(report)), timeout=ANSWER_SECONDS
            )
        except (RayError, ValueError, GetTimeoutError) as error:
            # Restarting, or for good: it is looked up by name again.
            self._handle = None
            if not self._silent:
                log.warning("the coordinator does not answer: %s", last_line(error))
            self._silent = True
            return None
        if self._silent:
            log.info("the coordinator answers again")
        self._silent = False
        return unpack(answer, Receipt)

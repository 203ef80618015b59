"""The coordinator's part of the job's Prometheus: when it runs, and what it scrapes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection
from pathlib import Path

from ray_sentinel.actors.hosts import RayNode, host_label
from ray_sentinel.actors.storage import DeploymentStorage
from ray_sentinel.clock import Clock, SystemClock
from ray_sentinel.config import Config
from ray_sentinel.errors import SentinelError
from ray_sentinel.store.prometheus.job import JobPrometheus

log = logging.getLogger(__name__)

STEP_SECONDS = 2.0
"""Seconds between two looks at the program and its targets."""
AGAIN_SECONDS = 60.0
"""Seconds until the next attempt after Prometheus could not be started: somebody may be installing
it."""


class PrometheusKeeper:
    """Runs one if ``[prometheus] enabled`` requests it; ``notes`` say why there is none."""

    def __init__(
        self, config: Config, storage: DeploymentStorage, clock: Clock | None = None
    ) -> None:
        self._config, self._clock = config, clock or SystemClock()
        self._server: JobPrometheus | None = None
        self._problem = ""
        self._due = 0.0
        self._lock = threading.Lock()
        self._closed = False
        self._folder: Path | None = None
        if config.prometheus.enabled:
            self._folder = storage.folder("prometheus")
            if self._folder is None:
                self._problem = "no Prometheus: its data cannot be written anywhere"

    @property
    def wanted(self) -> bool:
        """Whether one should be kept running, so that ``step`` must be called."""
        return self._folder is not None

    @property
    def url(self) -> str:
        """Its URL on the coordinator's machine; empty if there is none."""
        return self._server.url if self._server is not None else ""

    @property
    def notes(self) -> tuple[str, ...]:
        """Problems for people."""
        if self._problem:
            return (self._problem,)
        return self._server.notes if self._server is not None else ()

    def step(self, agents: tuple[str, ...], nodes: Collection[RayNode]) -> None:
        """Make sure that it runs and knows its targets."""
        with self._lock:
            if self._server is None and self._clock.monotonic() >= self._due and not self._closed:
                self._make()
            if self._server is not None:
                self._server.step(agents, ray_targets(nodes))

    def close(self) -> None:
        """Stop it."""
        with self._lock:
            self._closed = True
            if self._server is not None:
                self._server.close()

    def _make(self) -> None:
        if self._folder is None:
            return
        settings = self._config.prometheus
        try:
            self._server = JobPrometheus(
                self._folder,
                binary=settings.binary,
                port=settings.port,
                retention=settings.retention,
                max_bytes=self._config.storage.max_bytes,
                scrape=self._config.scrape,
            )
        except SentinelError as error:
            problem = f"no Prometheus: {error}"
            if problem != self._problem:
                log.warning("%s", problem)
            self._problem, self._due = problem, self._clock.monotonic() + AGAIN_SECONDS
        else:
            self._problem = ""


def ray_targets(nodes: Collection[RayNode]) -> dict[str, str]:
    """Ray's own metrics: ``host:port`` → host label, for the living nodes that serve them (a Ray
    without its dashboard has the port -1)."""
    return {
        f"{node.address}:{node.metrics_port}": host_label(node, nodes)
        for node in nodes
        if node.alive and node.metrics_port > 0
    }

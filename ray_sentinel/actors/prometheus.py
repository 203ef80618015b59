"""The coordinator's part of the job's Prometheus: when it runs, and whom it scrapes."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from ray_sentinel.actors.hosts import host_label, ray_nodes
from ray_sentinel.actors.storage import Storage
from ray_sentinel.config import Config
from ray_sentinel.errors import SentinelError
from ray_sentinel.store.job_prometheus import JobPrometheus

log = logging.getLogger(__name__)

STEP_SECONDS = 2.0


class PrometheusKeeper:
    """Runs one where ``[prometheus] enabled`` asks for it; ``notes`` say why there is none."""

    def __init__(self, config: Config, storage: Storage) -> None:
        self._server: JobPrometheus | None = None
        self._problem = ""
        if not config.prometheus.enabled:
            return
        folder = storage.folder("prometheus")
        if folder is None:
            self._problem = "no Prometheus: its data cannot be written anywhere"
            return
        try:
            self._server = JobPrometheus(
                folder,
                binary=config.prometheus.binary,
                port=config.prometheus.port,
                retention=config.prometheus.retention,
                max_bytes=config.storage.max_bytes,
            )
        except SentinelError as error:
            self._problem = f"no Prometheus: {error}"
            log.warning("%s", self._problem)

    @property
    def wanted(self) -> bool:
        """Whether there is one to be kept running."""
        return self._server is not None

    @property
    def url(self) -> str:
        """Where it answers, on the coordinator's machine; empty where there is none."""
        return self._server.url if self._server is not None else ""

    @property
    def notes(self) -> tuple[str, ...]:
        """What people should know."""
        if self._problem:
            return (self._problem,)
        return self._server.notes if self._server is not None else ()

    def step(self, agents: tuple[str, ...], nodes: Iterable[Mapping[str, Any]]) -> None:
        """See that it runs and knows its targets; ``nodes`` are Ray's."""
        if self._server is not None:
            self._server.step(agents, ray_targets(nodes))

    def close(self) -> None:
        """End it."""
        if self._server is not None:
            self._server.close()


def ray_targets(entries: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Ray's own metrics: ``host:port`` → host label, of the nodes that live."""
    entries = list(entries)
    nodes = ray_nodes(entries)
    return {
        f"{entry['NodeManagerAddress']}:{entry['MetricsExportPort']}": host_label(
            nodes[entry["NodeID"]], nodes.values()
        )
        for entry in entries
        if entry.get("Alive") and entry.get("MetricsExportPort")
    }

"""The embedded history of nodes that tell what a test says, through the engine's telemetry."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from ray_sentinel.actors.coordinator.history import HistoryKeeper
from ray_sentinel.actors.messages import HistoryRequest
from ray_sentinel.clock import Clock
from ray_sentinel.engine.telemetry.series import HostRow, Telemetry
from ray_sentinel.model.identity import Node
from ray_sentinel.model.progress import Snapshot
from ray_sentinel.model.samples import SampleSender
from tests.support.samples import series_key


class ToldHistory(HistoryKeeper):
    """``take`` is what an agent sends; values of one host must be 4 s apart to be kept."""

    def __init__(
        self,
        folder: Path | None,
        clock: Clock,
        *,
        owner: str = "",
        begin: float = -math.inf,
        telemetry: Telemetry | None = None,
    ) -> None:
        request = HistoryRequest(series=600, seconds=5.0)
        super().__init__(folder, clock, self._told_rows, lambda: request, begin=begin, owner=owner)
        self.telemetry = telemetry or Telemetry()
        self._now, self._engine = clock, threading.Lock()
        self._senders: dict[str, SampleSender] = {}

    def take(self, host: str, series: Mapping[str, float]) -> None:
        """What a node says of now."""
        now = self._now.now()
        sender = self._senders.setdefault(host, SampleSender("rules", f"{id(self)}"))
        with self._engine:
            held = self.telemetry.held(host).get("rules")
            values = {series_key(text): value for text, value in series.items()}
            snapshot = Snapshot(
                node=Node(id=host, host=host, address=""),
                time=now,
                sequence=0,
                samples=(sender.batch(values, held, now),),
            )
            self.telemetry.add(snapshot, now, 0.0)

    def _told_rows(
        self, until: dict[str, float], begin: float, seconds: float
    ) -> Iterator[HostRow]:
        return self.telemetry.rows(until, begin, seconds, self._engine)

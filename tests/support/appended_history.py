"""A history file that is filled as the coordinator fills it."""

from __future__ import annotations

from collections.abc import Mapping

from ray_sentinel.store.history.source import HistorySource
from ray_sentinel.store.history.writer import PRUNE_SECONDS, History, RowPacker


class AppendedHistory(History):
    """Packs what a host says, writes it, and thins the file once a minute of the samples' time."""

    packer: RowPacker | None = None
    pruned: float | None = None

    def append(self, time: float, host: str, values: Mapping[str, float]) -> None:
        """The values of one host at one moment (Unix seconds). Raises ValueError for a key that is
        no series; nothing is written then."""
        self.packer = self.packer or RowPacker()
        self.put(self.packer.pack(time, host, values))
        if self.pruned is None or abs(time - self.pruned) >= PRUNE_SECONDS:
            self.pruned = time
            self.prune(time)

    def source(self) -> HistorySource:
        """What a reader of the file sees now."""
        return HistorySource.open(self.path)

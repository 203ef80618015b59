"""Which of a node's series are sent to the coordinator, and when. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from ray_sentinel.actors.messages import HistoryRequest, Receipt
from ray_sentinel.actors.metrics import history_samples, key_samples
from ray_sentinel.model.metrics import Family
from ray_sentinel.model.samples import SampleBatch, SampleSender, StreamName, TableHeld

SAMPLE_SECONDS = 4.5
"""Seconds between two samples of the key series, which change with the collectors' cycles."""


class NodeSampling:
    """Samples each stream when it is due. Used by one thread."""

    def __init__(self, incarnation: str) -> None:
        """``incarnation`` differs with every start of the agent."""
        self._rules = SampleSender("rules", incarnation)
        self._others = SampleSender("history", incarnation)
        self._history = HistoryRequest()
        self._held: dict[StreamName, TableHeld] = {}
        self._due = self._history_due = float("-inf")

    def due(
        self, collected: Iterable[Family], measured: Iterable[Family], now: float
    ) -> tuple[SampleBatch, ...]:
        """What to send now (increasing seconds): the key series of ``collected``, and for the
        history the other ones of ``measured``. A series needed for both is sent once."""
        if now < self._due:
            return ()
        self._due = now + SAMPLE_SECONDS
        key = key_samples(collected)
        batches = [(self._rules, key)]
        # As often as requested, but together with the key series, so that their times are the same.
        if self._history.series and now >= self._history_due - SAMPLE_SECONDS / 2:
            self._history_due = now + self._history.seconds
            wanted = history_samples(measured, self._history.series)
            others = {series: value for series, value in wanted.items() if series not in key}
            batches.append((self._others, others))
        return tuple(
            sender.batch(values, self._held.get(sender.stream), now)
            for sender, values in batches
            if values
        )

    def accept(self, receipt: Receipt) -> None:
        """Set what the coordinator has, and what it wants."""
        self._history, self._held = receipt.history, receipt.tables

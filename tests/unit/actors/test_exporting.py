"""Exporters that fail: said once, and the others go on."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import pytest

from ray_sentinel.actors.exporting import Exporting
from ray_sentinel.config import Config
from ray_sentinel.model.metrics import Family


class Broken:
    """An exporter that raises whatever it is asked."""

    name = "broken"
    url = ""

    def publish(self, families: Iterable[Family]) -> None:
        raise ZeroDivisionError("no such thing")

    def close(self) -> None:
        raise KeyError("already closed")


class Good:
    """Counts what it is asked."""

    name = "good"
    url = ""

    def __init__(self) -> None:
        self.published = self.closed = 0

    def publish(self, families: Iterable[Family]) -> None:
        self.published += 1

    def close(self) -> None:
        self.closed += 1


def test_one_that_fails_is_said_once_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    exporting, good = Exporting(Config(), "h", "127.0.0.1", points=()), Good()
    exporting._running = [Broken(), good]  # type: ignore[list-item]
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            exporting.publish(())
    assert exporting.notes == ["exporter broken failed: ZeroDivisionError: no such thing"]
    assert len(caplog.records) == 1
    exporting.close()
    assert (good.published, good.closed) == (3, 1)
    assert "KeyError" in exporting.notes[-1]

"""Exporters that fail: said once, and the others go on."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable

import msgspec
import pytest

from ray_sentinel.actors.agent.exporting import Exporting
from ray_sentinel.config import Config
from ray_sentinel.model.metrics import Family
from tests.support.waiting import eventually


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
    exporting.exporters = [Broken(), good]  # type: ignore[list-item]
    with caplog.at_level(logging.WARNING):
        for number in range(1, 4):
            exporting.publish(())
            eventually(lambda number=number: good.published == number, "it is handed on")
            eventually(lambda: len(exporting.notes) == 1, "and by the other not")
    assert exporting.notes == ["exporter broken failed: ZeroDivisionError: no such thing"]
    assert len(caplog.records) == 1
    exporting.close()
    assert (good.published, good.closed) == (3, 1)
    assert "KeyError" in exporting.notes[-1]


class Options(msgspec.Struct):
    """None."""


class Made(Good):
    """As an entry point gives it."""

    Options = Options

    def __init__(self, host: str, address: str, options: Options) -> None:
        super().__init__()

    def start(self) -> None:
        """Nothing to begin."""


class Unmakable(Made):
    """Fails in its constructor as anybody's code may."""

    def __init__(self, host: str, address: str, options: Options) -> None:
        raise ValueError("no such protocol")


class NoPort(Made):
    """Has an address that is none."""

    url = "http://127.0.0.1:port/"


class Point:
    """An entry point."""

    def __init__(self, name: str, kind: type[Made] | None) -> None:
        self.name, self._kind = name, kind

    def load(self) -> type[Made]:
        if self._kind is None:
            raise SyntaxError("invalid syntax (theirs.py, line 1)")
        return self._kind


def test_one_that_cannot_be_made_keeps_no_agent_from_starting() -> None:
    kinds = {"good": Made, "unmakable": Unmakable, "unloadable": None, "no-port": NoPort}
    points = [Point(name, kind) for name, kind in kinds.items()]
    exporting = Exporting(Config(), "h", "127.0.0.1", points=points)  # type: ignore[arg-type]
    assert {note.split(":")[0] for note in exporting.notes} == {
        "exporter unmakable",
        "exporter unloadable",
        "exporter no-port",
    }
    exporting.publish(())
    good = [exporter for exporter in exporting.exporters if type(exporter) is Made]
    eventually(lambda: [exporter.published for exporter in good] == [1], "it is handed on")


def test_one_that_hangs_holds_up_nobody() -> None:
    gate = threading.Event()

    class Hangs(Good):
        def publish(self, families: Iterable[Family]) -> None:
            super().publish(families)
            gate.wait(30)

        def close(self) -> None:
            gate.wait(30)

    exporting, good, hangs = Exporting(Config(), "h", "127.0.0.1", points=()), Good(), Hangs()
    exporting.exporters = [hangs, good]  # type: ignore[list-item]
    for number in range(1, 4):
        exporting.publish(())
        eventually(lambda number=number: good.published == number, "the other has it")
    assert hangs.published == 1
    begun = time.monotonic()
    exporting.close()
    assert time.monotonic() - begun < 10
    assert good.closed == 1
    gate.set()

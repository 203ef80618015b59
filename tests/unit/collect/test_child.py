"""A collector's process, with collectors whose attributes may hold anything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ray_sentinel.api import Collector, Context, Metric, Sample
from ray_sentinel.collect.child import CollectorLoop
from ray_sentinel.collect.protocol import Ask, CollectorSource, FromChild, Setup

LOAD = Metric("mine_load", "gauge", "Load.")


class RunnerPipe:
    """Keeps what would go to the runner."""

    def __init__(self) -> None:
        self.messages: list[FromChild] = []

    def send(self, message: FromChild) -> None:
        self.messages.append(message)


class Warnings:
    """Keeps warnings."""

    def __init__(self) -> None:
        self.texts: list[str] = []


class Mine(Collector):
    name = "mine"
    metrics = (LOAD,)
    problems: Any = ()

    def collect(self) -> Iterator[Sample]:
        yield LOAD(1.0)


@pytest.mark.parametrize(
    ("held", "told"),
    [
        ((), ()),
        (["no card 3"], ("no card 3",)),
        ("no card 3", ("no card 3",)),
        (None, ()),
        (3, ()),
        ([OSError("gone")], ("gone",)),
    ],
)
def test_what_it_could_not_read_is_told_whatever_it_is_kept_in(
    held: object, told: tuple[str, ...]
) -> None:
    collector = Mine(Context())
    collector.problems = held
    setup = Setup(source=CollectorSource(name="mine", kind="python", target="mine.py"), host="h")
    worker = CollectorLoop(RunnerPipe(), setup, collector, Warnings())  # type: ignore[arg-type]
    answer = worker.run(Ask(sequence=1, deadline=60.0))
    assert answer.outcome == "ok"
    assert answer.problems == told


class Pausing(Mine):
    wanted: Any = 0.0

    def collect(self) -> Iterator[Sample]:
        self.pause_seconds = self.wanted
        yield LOAD(1.0)


@pytest.mark.parametrize(
    ("wanted", "told"),
    [(30.0, 30.0), (5, 5.0), (-1.0, 0.0), (float("nan"), 0.0), (float("inf"), 0.0), ("10", 0.0)],
)
def test_a_pause_is_told_whatever_it_was_set_to(wanted: object, told: float) -> None:
    collector = Pausing(Context())
    collector.wanted = wanted
    setup = Setup(source=CollectorSource(name="mine", kind="python", target="mine.py"), host="h")
    worker = CollectorLoop(RunnerPipe(), setup, collector, Warnings())  # type: ignore[arg-type]
    assert worker.run(Ask(sequence=1, deadline=60.0)).pause == told


def test_a_pause_holds_once() -> None:
    class First(Mine):
        runs = 0

        def collect(self) -> Iterator[Sample]:
            self.runs += 1
            if self.runs == 1:
                self.pause_seconds = 30.0
            yield LOAD(1.0)

    setup = Setup(source=CollectorSource(name="mine", kind="python", target="mine.py"), host="h")
    worker = CollectorLoop(RunnerPipe(), setup, First(Context()), Warnings())  # type: ignore[arg-type]
    asked = [worker.run(Ask(sequence=number, deadline=60.0)).pause for number in (1, 2)]
    assert asked == [30.0, 0.0]

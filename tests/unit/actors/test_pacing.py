"""When an agent reports."""

from __future__ import annotations

import msgspec
import pytest

from ray_sentinel.actors.agent.pacing import ReportPace
from ray_sentinel.model.identity import ProcessId, Rank, RankId
from ray_sentinel.model.progress import (
    LastWords,
    ProcessState,
    Progress,
    RankSnapshot,
    RayProcess,
)


def rank(number: int = 0, step: int = 0, **state: object) -> RankSnapshot:
    return RankSnapshot(
        rank=Rank(id=RankId("j", 0, number), process=ProcessId("h", 100 + number), node="n"),
        process=ProcessState(**{"state": "S", "cpu_seconds": float(step), **state}),  # type: ignore[arg-type]
        progress=Progress(step=step),
    )


def worker(title: str = "Rollout.generate", state: str = "S") -> RayProcess:
    return RayProcess(process=ProcessId("h", 7), title=title, state=state)


def reports(pace: ReportPace, seconds: int, begin: float = 0.0) -> int:
    """How many looks of a node at work are reported."""
    told = [
        pace.due([rank(step=second)], [worker(f"R.m{second}")], begin + second, owes=False)
        for second in range(seconds)
    ]
    return sum(told)


def test_as_often_as_the_coordinator_asks_for() -> None:
    pace = ReportPace(1.0)
    assert (pace.interval, reports(pace, 10)) == (1.0, 10)
    pace.take(2.0)
    assert (pace.interval, reports(pace, 20, 100.0)) == (2.0, 10)
    pace.take(0.5)
    assert (pace.interval, reports(pace, 10, 200.0)) == (1.0, 10), "not more often than it looks"


def test_a_report_that_did_not_come_in_is_followed_by_the_next_look() -> None:
    pace = ReportPace(1.0)
    pace.take(4.0)
    assert pace.due([rank()], (), 0.0, owes=False)
    assert not pace.due([rank()], (), 1.0, owes=False)
    pace.take(None)
    assert pace.due([rank()], (), 2.0, owes=False)


HELD = [
    rank(state="T"),
    rank(state="D"),
    rank(frozen=True),
    rank(tracer_pid=9),
    rank(interpreter="gil-held"),
]


@pytest.mark.parametrize("held", HELD)
def test_who_is_held_up_is_told_at_once_and_as_long_as_that_lasts(held: RankSnapshot) -> None:
    pace = ReportPace(1.0)
    pace.take(4.0)
    assert pace.due([rank()], (), 0.0, owes=False)
    assert [pace.due([held], (), at, owes=False) for at in (1.0, 2.0, 3.0)] == [True] * 3
    assert pace.due([rank()], (), 4.0, owes=False), "that it goes on"
    assert not pace.due([rank()], (), 5.0, owes=False)


def test_who_comes_goes_or_says_its_last_is_told_at_once() -> None:
    pace = ReportPace(1.0)
    pace.take(4.0)
    words = LastWords(time=0.0, kind="exception", text="ValueError")
    spoken = msgspec.structs.replace(rank(), progress=Progress(last_words=words))
    seen = [
        ([rank()], []),
        ([rank(), rank(1)], []),
        ([spoken, rank(1)], []),
        ([spoken], [worker()]),
        ([spoken], [worker(state="T")]),
        ([], []),
    ]
    told = [
        pace.due(ranks, workers, number * 0.1, owes=False)
        for number, (ranks, workers) in enumerate(seen)
    ]
    assert told == [True] * len(seen)
    assert not pace.due([], [], 0.7, owes=False)
    assert pace.due([], [], 0.8, owes=True)

"""When an agent reports."""

from __future__ import annotations

import msgspec
import pytest

from ray_sentinel.actors.agent.reporting import ReportPace
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


def at_work(pace: ReportPace, second: float) -> bool:
    """Whether a look at a node that works is reported."""
    return pace.due([rank(step=int(second))], [worker(f"R.m{second}")], second, owes=False)


def reports(pace: ReportPace, seconds: int, begin: int) -> int:
    """How many of a look a second are."""
    return sum(at_work(pace, begin + second) for second in range(seconds))


@pytest.mark.parametrize(
    ("wanted", "interval"), [(0.0, 1.0), (1.0, 1.0), (1.01, 2.0), (1.6, 2.0), (2.0, 2.0)]
)
def test_as_often_as_the_coordinator_asks_for(wanted: float, interval: float) -> None:
    pace = ReportPace(1.0, phase=0.3)
    assert reports(pace, 10, 0) == 10
    pace.set_interval(wanted)
    assert pace.interval == 1.0, "as the last report said"
    assert at_work(pace, 99.0)
    assert pace.interval == interval
    assert reports(pace, 40, 100) == pytest.approx(40 / interval, abs=1)


def test_every_look_is_reported_where_nobody_asks_for_less_however_soon_it_follows() -> None:
    pace = ReportPace(1.0)
    assert [at_work(pace, at) for at in (0.6, 1.05, 1.1, 2.6)] == [True] * 4


def test_what_happens_on_all_nodes_at_once_does_not_make_them_report_together() -> None:
    paces = [ReportPace(1.0, phase=number / 1000) for number in range(1000)]
    for pace in paces:
        pace.set_interval(2.0)
        assert at_work(pace, 0.0)
    for second in range(1, 5):
        for pace in paces:
            pace.due([rank()], (), second, owes=False)
    told = [
        sum(pace.due([rank(), rank(1)], (), second, owes=False) for pace in paces)
        for second in range(5, 20)
    ]
    assert told[0] == 1000, "the event"
    assert max(told[1:]) < 600


def test_a_report_that_did_not_come_in_is_followed_by_the_next_look() -> None:
    pace = slow()
    assert not pace.due([rank()], (), 1.0, owes=False)
    pace.set_interval(None)
    assert pace.due([rank()], (), 2.0, owes=False)
    assert not pace.due([rank()], (), 3.0, owes=False)


def slow() -> ReportPace:
    """One that is not due for long, and has told of a rank."""
    pace = ReportPace(1.0, phase=0.0)
    pace.set_interval(1000.0)
    assert pace.due([rank()], (), 0.0, owes=False)
    assert pace.interval == 1000.0
    return pace


HELD = [
    rank(state="T"),
    rank(state="D"),
    rank(frozen=True),
    rank(tracer_pid=9),
    rank(interpreter="gil-held"),
]


@pytest.mark.parametrize("held", HELD)
def test_who_is_held_up_is_told_at_once_and_as_long_as_that_lasts(held: RankSnapshot) -> None:
    pace = slow()
    assert [pace.due([held], (), at, owes=False) for at in (1.0, 2.0, 3.0)] == [True] * 3
    assert pace.due([rank()], (), 4.0, owes=False), "that it goes on"
    assert not pace.due([rank()], (), 5.0, owes=False)


def test_who_comes_goes_or_says_its_last_is_told_at_once() -> None:
    pace = slow()
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
    assert told == [False] + [True] * (len(seen) - 1)
    assert not pace.due([], [], 0.7, owes=False)
    assert pace.due([], [], 0.8, owes=True)

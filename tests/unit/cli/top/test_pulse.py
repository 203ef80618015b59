"""A job's pulse as cells: window, height, what happened, and what is missing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ray_sentinel.cli.top.pulse import PulseLine, main_lane, pulse_lines, seconds, sparkline
from ray_sentinel.model.incident import Incident
from ray_sentinel.model.last_hour import JobPulse, PulseLane, PulsePhase, PulsePoint, PulseReport
from ray_sentinel.model.status import JobStatus, State
from tests.support.page_data import incident, status

BEGIN, PLACES = 1_000_000.0, 360
END = BEGIN + 3600.0


def job(state: State) -> JobStatus:
    return msgspec.structs.replace(status().jobs[0], state=state)


def lines(
    points: tuple[PulsePoint, ...],
    *,
    state: State = "healthy",
    incidents: tuple[Incident, ...] = (),
    columns: int = 30,
    phases: tuple[PulsePhase, ...] = (),
) -> list[PulseLine]:
    lane = PulseLane(name="", points=points)
    pulse = JobPulse(job="llama", attempt=1, counts="steps", lanes=(lane,), phases=phases)
    report = PulseReport(begin=BEGIN, width=10.0, places=PLACES, jobs=(pulse,))
    return pulse_lines(report, (job(state),), incidents, columns)


def drawn(points: tuple[PulsePoint, ...], **options: Any) -> str:
    (line,) = lines(points, **options)
    return sparkline(line).plain


def even(first: int, until: int = PLACES, longest: float = 1.0) -> tuple[PulsePoint, ...]:
    return tuple((number, 10, 1.0, longest) for number in range(first, until))


@pytest.mark.parametrize(("first", "window"), [(330, 300.0), (300, 900.0), (0, 3600.0)])
def test_the_shortest_window_that_has_all_is_drawn(first: int, window: float) -> None:
    (line,) = lines(even(first))
    assert line.window == window


def test_an_even_job_is_half_as_high_and_a_slow_step_stands_out() -> None:
    assert set(drawn(even(330))) == {"▅"}
    slow = drawn((*even(330, 345), (345, 1, 9.0, 9.0), *even(346)))
    assert slow.count("█") == 1
    assert set(slow) == {"▂", "█"}


def test_one_endless_step_does_not_flatten_the_others() -> None:
    (line,) = lines((*even(330, 345), (345, 1, 4000.0, 4000.0), *even(346)))
    assert set(sparkline(line).plain) == {"▂", "█"}
    assert "yellow" in {str(span.style) for span in sparkline(line).spans}, "it is cut off"


def test_where_nothing_ends_is_empty_or_stands_still() -> None:
    assert drawn(even(330, 350)) == "▅" * 20 + " " * 10
    assert drawn(even(330, 350), state="hung") == "▅" * 20 + "×" * 10


def test_a_phase_and_an_incident_have_their_signs() -> None:
    checkpoint = PulsePhase(phase="checkpoint", start=END - 150, end=END - 110)
    begun = PulsePhase(phase="evaluation", start=END - 20)
    points = (*even(330, 345), *even(349, 358))
    shown = drawn(points, phases=(checkpoint, begun))
    assert shown == "▅" * 15 + "░" * 4 + "▅" * 9 + "░" * 2
    mine = msgspec.structs.replace(incident(), suspected_at=END - 45)
    other = msgspec.structs.replace(mine, attempt=2)
    asked = msgspec.structs.replace(mine, kind="asked", suspected_at=END - 95)
    assert drawn(even(330), incidents=(mine, other, asked)).index("!") == 25
    assert drawn(even(330), incidents=(other, asked)) == "▅" * 30


@pytest.mark.parametrize("columns", [1, 7, 60, 1000])
def test_any_width_is_filled_and_not_exceeded(columns: int) -> None:
    assert len(drawn(even(0), columns=columns)) == min(columns, PLACES)


def test_the_lane_in_which_most_of_the_time_went_is_the_main_one() -> None:
    lanes = (
        PulseLane(name="A.often", points=((1, 100, 0.01, 0.02),)),
        PulseLane(name="B.long", points=((2, 1, 30.0, 30.0),)),
        PulseLane(name="C.empty"),
    )
    pulse = JobPulse(job="llama", attempt=1, counts="calls", lanes=lanes)
    report = PulseReport(begin=BEGIN, width=10.0, places=PLACES, jobs=(pulse,))
    found = pulse_lines(report, (job("healthy"),), (), 20)
    main = main_lane(found)
    assert main is not None
    assert main.lane.name == "B.long"
    assert main_lane(()) is None


def test_zero_seconds_are_drawn() -> None:
    assert len(drawn(tuple((number, 1, 0.0, 0.0) for number in range(330, 360)))) == 30


def test_durations_are_short() -> None:
    assert [seconds(one) for one in (0.0, 0.0123, 0.83, 12.0, 180.0)] == [
        "0 ms", "12.3 ms", "0.83 s", "12 s", "3.0 min",
    ]  # fmt: skip

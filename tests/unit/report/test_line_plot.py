"""Lines over time: inside their picture, whatever the values."""

from __future__ import annotations

import math

import pytest

from ray_sentinel.model.diagnosis import Diagnosis, Plot
from ray_sentinel.report.line_plot import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    clock_ticks,
    line_plot,
    round_ticks,
)
from ray_sentinel.report.series import drawn_around, plots_json, read_plots
from tests.support.incidents import an_incident

HOLE = math.nan


def a_plot(*values: float, marks: tuple[tuple[float, str], ...] = ()) -> Plot:
    times = tuple(1000.0 + 10.0 * number for number in range(len(values)))
    return Plot(title="t", unit="s", promql="q", times=times, series=(("a", values),), marks=marks)


def test_a_hole_breaks_the_line_and_a_single_value_is_a_dot() -> None:
    drawn = line_plot(a_plot(0.0, 4.0, HOLE, 2.0, HOLE))
    assert drawn is not None
    (line,) = drawn.lines
    left, bottom, top = LEFT, HEIGHT - BOTTOM, TOP
    step = (WIDTH - LEFT - RIGHT) / 4
    middle = (bottom + top) / 2
    assert line.path == (
        f"M{left}.0 {bottom}.0h0L{left + step} {top}.0M{left + 3 * step} {middle}h0"
    )


@pytest.mark.parametrize(
    "values",
    [(0.0,), (7.0, 7.0), (-3.0, 5.0), (1e-9, 2e-9), (1e15, 3e15), (-9e299, 9e299), (0.502, 0.599)],
)
def test_any_range_has_round_ticks_within_the_picture(values: tuple[float, ...]) -> None:
    drawn = line_plot(a_plot(*values))
    assert drawn is not None
    assert 3 <= len(drawn.y_ticks) <= 8
    assert all(TOP <= tick.place <= HEIGHT - BOTTOM for tick in drawn.y_ticks)
    assert "nan" not in drawn.lines[0].path
    assert "inf" not in drawn.lines[0].path


def test_nothing_is_drawn_of_nothing() -> None:
    assert line_plot(a_plot()) is None
    assert line_plot(a_plot(HOLE, math.inf, -1e308)) is None


def test_labels_of_near_marks_take_two_rows_and_no_third() -> None:
    marks = ((1010.0, "last progress"), (1010.5, "named"), (1011.0, "over"), (2000.0, "outside"))
    drawn = line_plot(a_plot(*range(10), marks=marks))
    assert drawn is not None
    assert [mark.label for mark in drawn.marks] == ["last progress", "named", ""]
    assert drawn.marks[0].label_y != drawn.marks[1].label_y


def test_ticks_of_time_are_whole_seconds_minutes_hours_and_days() -> None:
    assert [label for _, label in clock_ticks(3.0, 50.0)] == [
        "00:00:10", "00:00:20", "00:00:30", "00:00:40", "00:00:50",
    ]  # fmt: skip
    assert [label for _, label in clock_ticks(0.0, 7200.0)][:2] == ["00:00", "00:30"]
    assert len(clock_ticks(0.0, 90.0 * 86400)) <= 6
    assert round_ticks(0.0, 1.0) == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]


def test_an_incident_marks_its_moments_and_shades_the_silence() -> None:
    diagnosis = Diagnosis(
        outcome="healthy",
        cause="none",
        root_cause="r",
        confidence=0.5,
        plots=(a_plot(*range(10)), a_plot()),
    )
    incident = an_incident(last_progress=1030.0, confirmed_at=1060.0, suspected_at=1050.0)
    (drawn,) = drawn_around(incident, diagnosis)
    assert [mark.label for mark in drawn.marks] == ["last progress", "named"]
    assert drawn.shade is not None
    assert drawn.shade[1] == WIDTH - RIGHT


def test_series_are_kept_beside_the_diagnosis_with_their_holes() -> None:
    plot = a_plot(1.0, HOLE, 3.0, marks=((1005.0, "m"),))
    data = plots_json([plot])
    assert b"null" in data
    (back,) = read_plots(data)
    assert back.times == plot.times
    assert back.marks == plot.marks
    assert math.isnan(back.series[0][1][1])
    assert back.series[0][1][::2] == (1.0, 3.0)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b'[{"title": 3}]',
        b'[{"title":"t","unit":"","promql":"","times":[1],"series":[["a",[1,2]]]}]',
        b"[" * 5000,
    ],
)
def test_damaged_series_are_left_out(data: bytes) -> None:
    assert read_plots(data) == ()


@pytest.mark.parametrize(
    "values", [(0.0, 1e-16), (1e-13, 2e-13), (0.30000000000000004, 0.3), (0.0, 5e-324)]
)
def test_values_that_hardly_differ_are_drawn(values: tuple[float, ...]) -> None:
    assert line_plot(a_plot(*values)) is not None


def test_series_of_no_calendar_are_left_out() -> None:
    told = plots_json((a_plot(1.0, 2.0),))
    assert read_plots(told) != ()
    assert read_plots(told.replace(b"1000.0", b"1e300")) == ()


@pytest.mark.parametrize("step", [0.0, 1.0, 2.0**62, -(2.0**62)])
@pytest.mark.parametrize("value", [0.0, 1.0, 9.2e18, -9.2e18, 1e90])
def test_numbers_so_large_that_one_more_is_the_same_are_drawn(step: float, value: float) -> None:
    plot = Plot(title="t", unit="s", promql="q", times=(step,), series=(("a", (value,)),))
    assert line_plot(plot, over_steps=True) is not None

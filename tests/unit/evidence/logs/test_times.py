"""Times in the formats that jobs mix."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_sentinel.evidence.logs.lines.lines import parse_line
from ray_sentinel.evidence.logs.lines.times import driver_age, driver_began, find_year, parse_time
from ray_sentinel.evidence.logs.training.bare_steps import parse_any_step

MAY_1_10H = 1714557600.0


@pytest.mark.parametrize(
    "line",
    [
        "2024-05-01 10:00:00,000 INFO x",
        "2024-05-01T10:00:00Z x",
        "[2024-05-01 10:00:00,000 E 12 34] (raylet) x",
        "2024/05/01 10:00:00 x",
        "2024-05-01T12:00:00+02:00 x",
        "2024-05-01T05:30:00-0430 x",
        "  time      : 2024-05-01_10:00:00",
        "E0501 10:00:00.000000 900 x.cc:1] y",
        "[rank0]:[E501 10:00:00.000000000 ProcessGroupNCCL.cpp:607] x",
        "INFO 05-01 10:00:00 [core.py:1] x",
        "May  1 10:00:00 host kernel: x",
        "[Wed May  1 10:00:00 2024] NVRM: x",
        "Wed May  1 10:00:00 UTC 2024",
        "[05/01/24 10:00:00] INFO x",
        "05/01/2024 10:00:00 - INFO - __main__ - x",
        "05/01 10:00:00 - mmengine - INFO - x",
        "I 05-01 10:00:00 controller.py:118] x",
        "1714557600.000 x",
        '{"label": "RAY_WORKER_FAILURE", "message": "x", "timestamp": 1714557600}',
    ],
)
def test_one_moment_in_many_formats(line: str) -> None:
    assert parse_time(line, 2024) == MAY_1_10H


@pytest.mark.parametrize(
    "line",
    [
        "",
        "plain",
        "step 10: loss 2:30:99",
        "0:00:01.5 elapsed",
        "2024-13-45 10:00:00",
        "E9999 10:00:00 x",
    ],
)
def test_no_time(line: str) -> None:
    assert parse_time(line, 2024) is None


@pytest.mark.parametrize(
    "line",
    [
        "2024-05-01  10:00:00 x",
        "x:2024-05-01_10:00:00 UTC x",
        "(A pid=1, ip=10.0.0.1:66) 2024-05-01 10:00:00 x",
        "12:2024-05-01 10:00:00 x",
        "3: 2024-05-01 12:00:00+0200 x",
        "2024-05-01 10:00:00 replaces 2024-05-01 09:00:00",
        "3024-05-01 2024-05-01 10:00:00 x",
    ],
)
def test_whatever_stands_before_it_and_in_it(line: str) -> None:
    assert parse_time(line, 2024) == MAY_1_10H


def test_only_the_front_of_a_line_counts() -> None:
    assert parse_time("x" * 200 + "2024-05-01 10:00:00", 2024) is None


def test_year() -> None:
    assert find_year("2023-12-31 23:59:59 x\n2024-01-01 00:00:00 y") == 2024
    assert find_year("E0501 10:00:00 x") is None


@given(st.text(max_size=200), st.integers(min_value=1970, max_value=2100))
def test_any_line_is_read(line: str, year: int) -> None:
    when = parse_time(line, year)
    assert when is None or isinstance(when, float)


@pytest.mark.parametrize(
    ("line", "age"),
    [
        ("(autoscaler +1h2m3s) Resized to 64 CPUs, 8 GPUs.", 3723.0),
        ("(autoscaler +59m5s) Error: No available node types can fulfill ...", 3545.0),
        ("(autoscaler +7s) Tip: use `ray status`.", 7.0),
        ("(autoscaler +26h) Removing 1 nodes of type worker.", 93600.0),
        ("(autoscaler) no age", None),
        ("INFO (autoscaler +7s) quoted", None),
    ],
)
def test_the_age_of_a_ray_driver(line: str, age: float | None) -> None:
    assert driver_age(line) == age
    assert parse_time(line, 2025) is None
    assert parse_any_step(parse_line(line).text) is None


def test_when_a_ray_driver_began() -> None:
    early = "2025-09-18 09:58:00,000\tINFO job_manager.py:568 -- Runtime env is setting up."
    own = "2025-09-18 10:00:00,000\tINFO worker.py:1942 -- Connected to Ray cluster."
    assert driver_began(["x", early, own], 2025) == parse_time(own)
    assert driver_began(["x", early], 2025) == parse_time(early)
    assert driver_began(["(autoscaler +7s) Tip"], 2025) is None

"""The phrases that all reports share: lengths of time, times with their zone, and states."""

from __future__ import annotations

import pytest

from ray_sentinel.model.health import GpuHealth, Health
from ray_sentinel.report.html import health_html, incident_html
from ray_sentinel.report.incident_markdown import markdown
from ray_sentinel.report.words import brief_progress, duration, progress_of, second, watts
from tests.support.page_data import NOW, incident


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0.0, "0 s"), (-3.0, "0 s"), (14.2, "14 s"), (59.6, "1 min"), (93.0, "1 min 33 s"),
        (3599.7, "1 h"), (12_308.0, "3 h 25 min"), (86_400.0, "1 d"), (100_000.0, "1 d 3 h"),
    ],
)  # fmt: skip
def test_a_length_of_time_has_two_units_at_most(seconds: float, told: str) -> None:
    assert duration(seconds) == told


def test_times_are_in_utc_and_powers_have_three_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    assert second(NOW) == "2027-01-15 08:00:00"
    assert [watts(one) for one in (640.0, 9_999.0, 39_040.0)] == ["640 W", "9999 W", "39.0 kW"]


def test_the_state_of_an_incident_is_told_in_words() -> None:
    assert progress_of("captured") == "going on, evidence saved"
    assert brief_progress("captured") == "going on"
    assert progress_of("one of a later version") == "one of a later version"
    assert "- **State:** going on, evidence saved" in markdown(incident())
    page = incident_html(incident())
    assert ">going on, evidence saved</span>" in page
    assert "<small>2027-01-15 UTC</small>" in page


def test_the_page_of_health_says_of_when_it_is() -> None:
    gpu = GpuHealth(count=64, busy=63, processes=64, avg_utilization=88.0, power_watts=39_040.0)
    told = Health(healthy=True, verdict="nothing is wrong", gpu=gpu, time=NOW)
    page = health_html(told)
    assert "<span>2027-01-15 08:00:00.0 UTC</span>" in page
    assert "64 processes, 39.0 kW, 88 % used on average" in page

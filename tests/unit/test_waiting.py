"""How long tests wait for what must come."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import waiting
from tests.support.waiting import eventually, stalled_seconds


class Machine:
    """A clock, and a share of the time in which some process waits for a CPU."""

    def __init__(self, busy: float) -> None:
        self.now, self.busy = 0.0, busy

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def stalled(self) -> float:
        return self.now * self.busy


@pytest.mark.parametrize(("busy", "seconds"), [(0.0, 10), (0.5, 20), (0.9, 30)])
def test_time_on_busy_cpus_does_not_count_up_to_three_times_the_time(
    busy: float, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(busy)
    monkeypatch.setattr(waiting, "time", machine)
    monkeypatch.setattr(waiting, "stalled_seconds", machine.stalled)
    with pytest.raises(AssertionError, match=rf"^not within {seconds} s \(.* CPUs\): rain$"):
        eventually(lambda: None, "rain", 10.0)
    assert machine.now == pytest.approx(seconds, abs=0.2)


def test_what_comes_is_returned_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(0.0)
    monkeypatch.setattr(waiting, "time", machine)
    assert eventually(lambda: machine.now > 3.0 and "rain", "rain", 10.0) == "rain"
    assert machine.now == pytest.approx(3.1, abs=0.1)


def test_what_the_kernel_counts(tmp_path: Path) -> None:
    file = tmp_path / "cpu"
    file.write_text(
        "some avg10=0.07 avg60=0.60 avg300=7.59 total=23496878121\n"
        "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
    )
    assert stalled_seconds(file) == pytest.approx(23496.878121)
    assert stalled_seconds(tmp_path / "none") == 0.0

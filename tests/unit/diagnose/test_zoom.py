"""The second look around the onset of a long job."""

from __future__ import annotations

import msgspec
import pytest

from ray_sentinel.diagnose.examine import examine
from ray_sentinel.diagnose.zoom import refined
from ray_sentinel.model.diagnosis import Diagnosis, DiagnosisReport, Link
from tests.support.diagnosis import faults, source_of
from tests.support.tsdb_scenarios import ranges
from tests.support.tsdb_scenarios.catalogue import scenario
from tests.support.tsdb_scenarios.truth import Truth


def long_job(name: str, hours: float) -> tuple[Truth, DiagnosisReport]:
    planted = scenario(name)
    made = type(planted)(name, planted.build, minutes=60 * hours, hosts=3)
    world, truth = made.make(1, gpus=4)
    return truth, examine(source_of(world))


@pytest.fixture(autouse=True)
def _every_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "INTERVAL", (10.0, 10.0))


@pytest.mark.parametrize("name", ["hang-port-down", "hardware-uncorrectable", "gpu-clock"])
def test_above_eight_hours_the_onset_is_looked_at_again(name: str) -> None:
    truth, report = long_job(name, 14.0)
    assert faults(truth, report.diagnosis) == []
    assert report.inventory.cell == 20.0
    said = [text for text in report.inventory.warnings if "around the onset" in text]
    assert len(said) == 1
    assert "cells of 10 s" in said[0]
    assert truth.onset is not None
    assert report.diagnosis.onset == pytest.approx(truth.onset, abs=30.0)
    shown = report.diagnosis.plots[0].times
    assert shown[0] <= report.diagnosis.onset <= shown[-1]


def test_a_shorter_job_and_a_healthy_one_are_not() -> None:
    for name, hours in (("hang-port-down", 4.0), ("healthy-plain", 14.0)):
        truth, report = long_job(name, hours)
        assert faults(truth, report.diagnosis) == []
        assert not [text for text in report.inventory.warnings if "around the onset" in text]


def answer(*times: float, onset: float | None = None) -> Diagnosis:
    links = tuple(
        Link(role="symptom", text=f"at {at}", at=at, uncertainty=20.0, host=f"n{index}")
        for index, at in enumerate(times)
    )
    return Diagnosis(analysis="hang", playbook="collective-hang", outcome="found", cause="x",
                     root_cause="x", confidence=0.9, chain=links, onset=onset)  # fmt: skip


def test_times_are_taken_over_where_both_speak_of_the_same_moment() -> None:
    coarse, fine = answer(100.0, 900.0, 300.0, onset=100.0), answer(110.0, 100.0, onset=112.0)
    both = refined(coarse, fine, 20.0)
    assert [link.at for link in both.chain] == [110.0, 900.0, 300.0]
    assert both.onset == 112.0
    assert [link.text for link in both.chain] == [link.text for link in coarse.chain]
    far = msgspec.structs.replace(fine, onset=500.0)
    assert refined(coarse, far, 20.0).onset == 100.0

"""Generated telemetry through a real engine: every rule's true cases, and no alarm on decoys."""

from __future__ import annotations

import pytest

from ray_sentinel.config import Config, CoordinatorConfig
from ray_sentinel.engine.rule import known_rules
from ray_sentinel.engine.telemetry.alert_rules import AlertRule
from ray_sentinel.engine.telemetry.series import TelemetrySeries
from ray_sentinel.model.samples import Floats
from tests.support.telemetry_sim.decoys import DECOYS, by_design
from tests.support.telemetry_sim.faults import COVERS, TRUE
from tests.support.telemetry_sim.job import TelemetryJob

SEEDS = (1, 2)


def said(job: TelemetryJob) -> list[tuple[str, str, str]]:
    return sorted((a.rule, a.host, a.gpu) for a in job.alerts.values())


@pytest.mark.parametrize("name", TRUE)
def test_a_true_case_is_told_with_its_place(name: str) -> None:
    for seed in SEEDS:
        job = TelemetryJob(seed * 7919)
        expected = TRUE[name](job)
        found = said(job)
        assert expected.rule == COVERS[name]
        assert (expected.rule, expected.host, expected.gpu) in found, (name, seed, found)


@pytest.mark.parametrize("name", DECOYS)
def test_no_alarm_on_a_decoy(name: str) -> None:
    for seed in SEEDS:
        job = TelemetryJob(seed * 104729)
        DECOYS[name](job)
        assert said(job) == [], (name, seed, [a.text for a in job.alerts.values()])
        assert not job.engine.incidents()


def test_gpus_that_nobody_gave_the_job_may_rest_by_design() -> None:
    job = TelemetryJob(5, told=False)
    by_design(job)
    assert not [alert for alert in job.alerts.values() if alert.rule == "gpu.idle"]


def test_every_telemetry_rule_has_a_true_case() -> None:
    rules = {name for name, rule in known_rules().items() if issubclass(rule, AlertRule)}
    assert rules == set(COVERS.values())
    assert set(TRUE) == set(COVERS)


def test_alerts_end_when_what_they_tell_ends() -> None:
    job = TelemetryJob(3)
    job.run(320)
    card = job.hosts[0].cards[1]
    card.throttle = "hw_thermal_slowdown"
    job.run(120)
    (status,) = job.engine.status(job.now).jobs
    assert [(a.rule, a.ranks) for a in status.alerts] == [("gpu.throttle", (1,))]
    card.throttle = ""
    job.run(180)
    (status,) = job.engine.status(job.now).jobs
    assert not status.alerts


def test_a_series_that_has_stopped_is_not_judged() -> None:
    times = Floats(map(float, range(0, 100, 4)))
    series = TelemetrySeries(times, Floats([300.0] * len(times)))
    assert series.covers(100.0, 30.0)
    assert not series.covers(140.0, 30.0)
    assert series.settled(140.0, 30.0) is None


def test_gauges_that_stop_do_not_stop_the_engine() -> None:
    config = Config(rules={"gpu.power_outlier": {"seconds": 30.0}, "gpu.idle": {"seconds": 30.0}})
    job = TelemetryJob(11, config=config)
    job.run(120)
    for host in job.hosts:
        host.cards.clear()
    job.run(120)
    assert said(job) == []


@pytest.mark.parametrize("series_bytes", [160 << 20, 120 << 10], ids=["whole", "thinned"])
def test_what_is_usual_counts_by_its_time_where_old_samples_are_kept_less_often(
    series_bytes: int,
) -> None:
    """For ten minutes other work has competed, after twenty without it: that is still not what is
    usual, though most of the samples that are left are of those ten minutes."""
    config = Config(coordinator=CoordinatorConfig(series_bytes=series_bytes))
    job = TelemetryJob(3, nodes=1, config=config)
    host = job.hosts[0]
    host.gauges["hw_procs_running"] = 10.0
    job.run(1300)
    host.gauges["hw_procs_running"] = 40.0
    job.run(600)
    series = job.engine.view.telemetry.of(host.name).one("hw_procs_running", job.now)
    assert series is not None
    values = [value for _, value in series.samples]
    assert (values.count(40.0) > values.count(10.0)) is (series_bytes < 1 << 20)
    assert series.since < job.now - 1500
    told = {alert.rule: alert.text for alert in job.engine.alerts()}
    assert told == {"host.cpu_contention": "40 threads compete for the CPUs, usually 10"}

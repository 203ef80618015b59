"""The end of jobs of which no log was collected."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from ray_sentinel.diagnose.case import DiagnoseOptions
from ray_sentinel.diagnose.detect import idle_onset
from ray_sentinel.diagnose.examine import examine
from ray_sentinel.diagnose.logs import LogFacts
from ray_sentinel.diagnose.quantities import QUANTITIES
from ray_sentinel.model.diagnosis import Diagnosis
from ray_sentinel.store.event_files.memory import MemorySource
from tests.support.diagnosis import case_of, case_of_source, diagnosed, source_of
from tests.support.tsdb_scenarios.catalogue import scenario
from tests.support.tsdb_scenarios.world import REST, World


def ended(seed: int, early: int, seconds: float, hosts: int = 5) -> World:
    """A job that ends at 70 %; the first ``early`` hosts rest, and steps end, seconds before."""
    world = World(seed=seed, hosts=hosts, gpus=2)
    world.checkpoints = False
    end = 0.7 * float(world.t[-1])
    world.state[:, :, world.after(end)] = REST
    world.state[:early, :, world.after(end - seconds)] = REST
    world.halt = end - (seconds if early else 0.0)
    world.play()
    return world


def without_logs(world: World) -> Diagnosis:
    return examine(source_of(world)).diagnosis


@pytest.mark.parametrize("seed", range(4))
def test_who_rested_first_is_named_with_doubt(seed: int) -> None:
    world, truth = scenario("heartbeat-died").make(seed)
    answer = without_logs(world)
    assert (answer.outcome, answer.cause) == ("found", "heartbeat-true")
    assert {one.host for one in answer.culprits} == truth.hosts
    assert answer.confidence < 0.6
    assert "No log" in answer.root_cause


def test_a_log_that_says_nothing_of_it_is_believed() -> None:
    world, _ = scenario("heartbeat-died").make(1)
    logs = LogFacts(summary=True, files=("job.log",))
    assert examine(source_of(world), logs=logs).diagnosis.outcome == "healthy"


@pytest.mark.parametrize("name", ["heartbeat-clean", "heartbeat-network", "heartbeat-storage"])
def test_hosts_that_were_well_to_the_end_are_not_accused(name: str) -> None:
    world, _ = scenario(name).make(2)
    answer = without_logs(world)
    assert (answer.outcome, answer.culprits) == ("healthy", ())
    assert "No log was collected that tells why it ended" in answer.root_cause


@pytest.mark.parametrize(
    ("early", "seconds", "hosts"),
    [(0, 0.0, 5), (1, 15.0, 5), (4, 300.0, 5), (1, 300.0, 2), (2, 300.0, 4)],
)
def test_nobody_is_named_where_it_is_not_plain(early: int, seconds: float, hosts: int) -> None:
    """All together; nearly so; all but one, which has work left; one of two; a half."""
    for seed in range(3):
        world = ended(seed, early, seconds, hosts)
        assert idle_onset.first(case_of(world)) is None
        assert without_logs(world).culprits == ()


def test_it_is_seen_by_utilisation_but_not_by_power_where_the_others_wait() -> None:
    world = ended(3, 1, 300.0)
    found = idle_onset.first(case_of(world))
    assert found is not None
    assert found.hosts == ("node001",)
    assert found.others_at - found.at == pytest.approx(300.0, abs=60.0)
    without = MemorySource("without utilisation")
    named = {name.metric for name in QUANTITIES["gpu.util"].names}
    for name, labels, times, values in world.series():
        if name not in named:
            without.add(name, labels, times, values)
    assert idle_onset.first(case_of_source(without)) is None


def test_hosts_that_the_job_went_on_without_were_done() -> None:
    """As where one part of a job makes samples and another trains on the last of them."""
    world = World(seed=3, hosts=5, gpus=2)
    world.checkpoints = False
    world.halt = end = 0.7 * float(world.t[-1])
    world.state[:, :, world.after(end)] = REST
    world.state[0, :, world.after(end - 300.0)] = REST
    world.play()
    assert idle_onset.first(case_of(world)) is None
    assert "node001" not in without_logs(world).root_cause


def test_an_end_that_was_told_is_judged_as_before() -> None:
    _, truth, report = diagnosed("heartbeat-clean", 3)
    assert report.diagnosis.cause == "heartbeat-false-positive"
    options = DiagnoseOptions(**dict(truth.options))  # type: ignore[arg-type]
    assert msgspec.structs.asdict(options)["accused"]
    assert np.isfinite(report.diagnosis.onset or np.nan)

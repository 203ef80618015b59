"""No sentence asserts what was not looked at, or what a table beside it contradicts."""

from __future__ import annotations

import pytest

from ray_sentinel.diagnose import wording
from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.examine import examine
from ray_sentinel.diagnose.logs import LogFacts
from ray_sentinel.diagnose.playbooks import named
from ray_sentinel.diagnose.view import View
from ray_sentinel.model.diagnosis import Diagnosis
from tests.support.diagnosis import case_of, source_of
from tests.support.tsdb_scenarios.catalogue import scenario
from tests.support.tsdb_scenarios.world import World


def told(world: World, playbook: str, **logs: object) -> Diagnosis:
    source = source_of(world)
    span = source.span()
    assert span is not None
    return named(playbook).run(JobCase(View(source, *span), LogFacts(**logs)))  # type: ignore[arg-type]


@pytest.mark.parametrize(("number", "said"), [(1, "1 ACK timeout"), (3, "3 ACK timeouts")])
def test_a_single_thing_is_told_as_one(number: int, said: str) -> None:
    assert wording.count(number, "ACK timeouts") == said


def test_the_network_is_not_called_clean_where_nothing_is_recorded_of_it() -> None:
    world = World(seed=5)
    world.skip |= {*world.rdma, "hw_rdma_port_state"}
    world.halt = 2000.0
    world.play()
    assert "nothing is recorded of its RDMA ports" in told(world, "collective-hang").root_cause


def test_small_counts_of_a_healthy_network_are_told() -> None:
    world = World(seed=6)
    world.rdma["hw_rdma_tx_ack_timeout_total"][1, 0, 100] = 1.0 / world.interval
    world.play()
    answer = told(world, "network-health")
    assert answer.outcome == "healthy"
    assert "1 ACK timeout" in answer.root_cause
    assert "no ACK timeouts" not in answer.root_cause


def test_unseen_gpus_are_not_counted_among_those_that_did_not_enter() -> None:
    world = World(seed=7, hosts=6)
    world.halt = 2000.0
    world.alive[5] = False
    world.play()
    text = told(world, "collective-hang").root_cause
    assert "of 48" not in text
    assert "all GPUs entered" in text


def test_errors_within_bounds_are_told_beside_the_all_clear() -> None:
    world = World(seed=8)
    name = next(n for n in world.errors if n.endswith("umc_ce_total"))
    world.errors[name][0, 3, 50] = 3.0
    world.play()
    assert "3 GPU memory (HBM) correctable errors" in told(world, "gpu-health").root_cause
    assert "3 GPU memory (HBM) correctable errors" in told(world, "hardware").root_cause


def test_a_driver_fault_that_harms_no_training_restarts_nothing() -> None:
    world, _ = scenario("hardware-driver-hang").make(1)
    answer = named("node-hardware-failure").run(case_of(world))
    assert answer.cause == "driver-fault"
    assert not any("Restart" in step for step in answer.next_steps)


def test_the_hosts_that_could_not_be_seen_stand_in_the_verdict() -> None:
    world, _ = scenario("healthy-plain").make(3)
    frozen = world.after(1500.0)
    world.gauges["hw_scrape_duration_seconds"][1, frozen] = 0.25
    world.power[1][:, frozen] = world.power[1][:, [int(1500 / world.interval)]]
    assert "node002 are ghosts" in examine(source_of(world)).diagnosis.root_cause


def test_a_log_that_says_failed_is_no_healthy_job() -> None:
    world, _ = scenario("healthy-plain").make(4)
    report = examine(source_of(world), logs=LogFacts(summary=True, failed=True))
    assert (report.diagnosis.outcome, report.diagnosis.cause) == ("unknown", "failed")


def test_tcp_is_a_suspect_where_the_log_says_that_nccl_took_its_sockets() -> None:
    world, _ = scenario("sockets-retransmits").make(2)
    world.skip.clear()
    assert told(world, "network", transport="socket").cause == "tcp-retransmits"
    assert told(world, "network", transport="rdma").cause != "tcp-retransmits"


def test_a_warm_up_that_never_was_and_gradients_that_are_mostly_cut() -> None:
    world, _ = scenario("healthy-plain").make(5)
    world.scalars["tb_learning_current_learning_rate"][:] = 3e-4
    world.scalars["tb_learning_raw_grad_norm"] *= 9.0
    text = told(world, "training", config={"warmup_steps": "100"}).root_cause
    assert "where the configuration has a warm-up of 100 steps" in text
    assert "gradients are clipped to 1/" in text

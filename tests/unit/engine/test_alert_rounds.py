"""A round of the telemetry rules in parts: it finds what it would at once, shows it at once, and is
state like everything else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import AnyEvent, SnapshotReceived, Tick
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.ranks import RankView
from ray_sentinel.engine.rules.gpu_faults import GpuHot
from ray_sentinel.engine.telemetry import alerting
from ray_sentinel.engine.telemetry.alert_rules import WatchedPart
from ray_sentinel.engine.telemetry.alerting import AT_ONCE, LOOK_EVERY, NODES_A_REPORT, NODES_A_TICK
from ray_sentinel.model.alert import Alert
from ray_sentinel.model.identity import Node, ProcessId, Rank, RankId
from ray_sentinel.model.progress import ProcessState, RankSnapshot, Snapshot
from tests.support.engine_sim import START
from tests.support.restarts import goes_on_alike, restarted
from tests.support.samples import sampled
from tests.support.telemetry_sim.decoys import DECOYS
from tests.support.telemetry_sim.faults import TRUE
from tests.support.telemetry_sim.job import TelemetryJob

NODES = 3 * AT_ONCE
WARM = 200
"""Seconds; longer than the window of the rule."""


@pytest.fixture
def _by_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node at a time, however few there are."""
    _go_by_ones(monkeypatch)


def _go_by_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerting, "AT_ONCE", 0)
    monkeypatch.setattr(alerting, "NODES_A_TICK", 1)
    monkeypatch.setattr(alerting, "NODES_A_REPORT", 1)


@pytest.mark.usefixtures("_by_ones")
@pytest.mark.parametrize("name", TRUE)
def test_parts_find_what_a_look_at_once_finds(name: str) -> None:
    job = TelemetryJob(7919)
    expected = TRUE[name](job)
    found = {(alert.rule, alert.host, alert.gpu) for alert in job.alerts.values()}
    assert (expected.rule, expected.host, expected.gpu) in found


@pytest.mark.usefixtures("_by_ones")
@pytest.mark.parametrize("name", DECOYS)
def test_parts_are_silent_where_a_look_at_once_is(name: str) -> None:
    job = TelemetryJob(104729)
    DECOYS[name](job)
    assert not job.alerts


@settings(
    deadline=None,
    max_examples=2,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.sampled_from(sorted(TRUE)), st.integers(1, 1000), st.data())
def test_a_round_goes_on_after_a_restart_in_its_middle(
    name: str, seed: int, data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        _go_by_ones(patch)
        job = TelemetryJob(seed)
        TRUE[name](job)
        last = len(job.log) - 1
        cuts = st.sets(st.integers(last // 2, last), min_size=3, max_size=8)
        goes_on_alike(job.log, data.draw(cuts))


def hot(number: int, second: int, *, job: str = "job") -> AnyEvent:
    """A node with one rank, whose GPU is too hot."""
    node = Node(id=f"n{number:03}", host=f"host{number}", address=f"10.0.0.{number}")
    rank = Rank(
        id=RankId(job, 0, number),
        process=ProcessId(node.host, 1000, 1),
        node=node.id,
        world_size=NODES,
        gpus=("0",),
    )
    samples = sampled({'hw_gpu_temperature_celsius{gpu="0"}': 110.0})
    snapshot = Snapshot(
        node=node,
        time=START + second,
        sequence=second,
        ranks=(RankSnapshot(rank=rank, process=ProcessState(state="S")),),
        samples=samples,
    )
    return SnapshotReceived(time=START + second, snapshot=snapshot)


def warmed(seconds: int) -> Engine:
    """An engine that has heard of all nodes for so long, and has not looked at them."""
    engine = Engine()
    for second in range(0, seconds, 10):
        for number in range(NODES):
            engine.handle(hot(number, second))
    return engine


def test_many_nodes_are_looked_at_by_and_by_and_shown_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[int] = []
    look = GpuHot.find_alerts

    def counted(rule: GpuHot, part: WatchedPart) -> Iterator[Alert]:
        sizes.append(len(part.nodes))
        return look(rule, part)

    monkeypatch.setattr(GpuHot, "find_alerts", counted)
    engine, second = warmed(WARM), WARM
    engine.handle(Tick(time=START + second))
    assert sizes == [], "a tick has work of its own"
    shown: list[int] = []
    for number in range(NODES):
        if engine.state.alerts.round is None:
            break
        if number == NODES // 8:
            assert 0 < sum(sizes) < NODES
            engine = restarted(engine)
        before = len(sizes)
        engine.handle(hot(number, second + 1))
        assert len(sizes) - before <= 1
        shown.append(len(engine.alerts()))
    assert sum(sizes) == NODES
    assert set(shown) == {0, NODES}, "all at once"
    assert {alert.since for alert in engine.alerts()} == {START + second}
    assert {alert.host for alert in engine.alerts()} == {f"host{n}" for n in range(NODES)}
    engine.handle(Tick(time=START + second + LOOK_EVERY - 1.0))
    assert engine.state.alerts.round is None, "the next round is not due"


def test_ticks_end_a_round_while_no_agent_is_heard() -> None:
    engine, second = warmed(WARM), float(WARM)
    engine.handle(Tick(time=START + second))
    ticks = 0
    while engine.state.alerts.round is not None:
        second += 0.5
        ticks += 1
        engine.handle(Tick(time=START + second))
    assert len(engine.alerts()) == NODES
    assert NODES // NODES_A_TICK < ticks < NODES // NODES_A_TICK + 20


def test_what_goes_while_a_round_is_under_way_is_left_out() -> None:
    engine, second = warmed(WARM), WARM
    engine.handle(Tick(time=START + second))
    for number in range(4):
        engine.handle(hot(number, second + 1))
    view = engine.view
    del view.nodes["n100"]
    view.telemetry.forget("n100")
    for number in range(NODES):
        engine.handle(hot(number, second + 1) if number != 100 else Tick(time=START + second + 1))
    assert engine.state.alerts.round is None
    assert len(engine.alerts()) == NODES - 1
    assert not engine.failures.told


@pytest.mark.usefixtures("_by_ones")
def test_a_job_that_ended_since_its_gpus_were_read_is_not_judged() -> None:
    """Of one that does not say which GPUs it was given, some rest by design; nobody would say so
    any more once its last rank has gone."""
    job = TelemetryJob(7919, told=False)
    for host in job.hosts:
        host.cards[0].state = "rest"
    job.run(420)
    engine = job.engine
    alerts = engine.state.alerts
    while alerts.round is not None:
        alerts.continue_round(engine.view, engine.failures)
    alerts.evaluate(engine.view, job.now + LOOK_EVERY, engine.failures)
    while (under_way := alerts.round) is not None and (under_way.jobs is None or under_way.nodes):
        alerts.continue_round(engine.view, engine.failures)
    assert alerts.round is not None
    assert not job.alerts
    assert alerts.round.seen["gpu.idle"]
    assert alerts.round.judged == ""
    for number, host in enumerate(job.hosts):
        node = Node(id=host.name, host=host.name, address=f"10.1.1.{number}")
        gone = Snapshot(node=node, time=job.now, sequence=1 << 30)
        # Not by ``handle``, with which the round would go on in between.
        engine.view.apply(gone, job.now)
    (view,) = engine.view.jobs.values()
    assert not view.live
    while alerts.round is not None:
        alerts.continue_round(engine.view, engine.failures)
    assert not engine.failures.told
    assert [alert.rule for alert in engine.alerts()] == []


def test_as_many_jobs_as_nodes_are_looked_at_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[tuple[str, str]] = []
    live_on = JobView.live_on

    def counted(job: JobView, node: str) -> list[RankView]:
        looks.append((job.job, node))
        return live_on(job, node)

    monkeypatch.setattr(JobView, "live_on", counted)
    engine, second = Engine(), 0
    for second in range(0, 20, 10):
        for number in range(NODES):
            engine.handle(hot(number, second, job=f"job{number}"))
    engine.handle(Tick(time=START + second))
    while engine.state.alerts.round is not None:
        engine.state.alerts.continue_round(engine.view, engine.failures)
    assert len(looks) <= NODES * NODES_A_REPORT
    assert {node for _, node in looks} == {f"n{number:03}" for number in range(NODES)}

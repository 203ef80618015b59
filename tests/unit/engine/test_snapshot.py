"""Snapshot, restore and continue: the same actions and the same state as never having stopped."""

from __future__ import annotations

from operator import methodcaller
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ray_sentinel.actors.coordinator.event_log.log import read_segment
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import AnyEvent
from ray_sentinel.engine.incidents.store import IncidentStore
from ray_sentinel.engine.state import STATE_VERSION, unpacked
from tests.support.engine_events import stories
from tests.support.engine_sim import Sim
from tests.support.restarts import goes_on_alike
from tests.support.telemetry_sim.faults import TRUE
from tests.support.telemetry_sim.job import TelemetryJob

LOGS = sorted((Path(__file__).parents[2] / "fixtures/events").rglob("*.jsonl.gz"))
# Without shrinking: a story takes long to be played, and its log tells enough.
SLOW = settings(
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@settings(SLOW, max_examples=25)
@given(stories(), st.data())
def test_any_story_goes_on_after_any_restarts(events: list[AnyEvent], data: st.DataObject) -> None:
    number = st.integers(0, len(events) - 1)
    goes_on_alike(events, data.draw(st.sets(number, min_size=1, max_size=4), label="cuts"))


@settings(SLOW, max_examples=5)
@given(stories())
def test_restarts_between_all_events_of_a_story(events: list[AnyEvent]) -> None:
    goes_on_alike(events[-300:], set(range(300)))


@settings(SLOW, max_examples=2)
@given(st.sampled_from(sorted(TRUE)), st.integers(1, 1000), st.data())
def test_telemetry_and_alerts_go_on(name: str, seed: int, data: st.DataObject) -> None:
    job = TelemetryJob(seed)
    TRUE[name](job)
    events = job.log
    cuts = data.draw(
        st.sets(st.integers(len(events) // 2, len(events) - 1), min_size=1, max_size=3)
    )
    goes_on_alike(events, cuts)


@pytest.mark.parametrize("path", LOGS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_recorded_runs_go_on(path: Path) -> None:
    _, events = read_segment(path)
    goes_on_alike(events, set(range(0, len(events), 7)))


class Other(msgspec.Struct):
    """The state of a version that lacks some fields and has others."""

    now: float
    cluster: ClusterView
    store: IncidentStore
    version: int = STATE_VERSION
    news: tuple[int, ...] = (1, 2)


def test_what_a_newer_version_adds_and_an_older_one_lacks_is_no_problem() -> None:
    sim = Sim()
    sim.run(30)
    sim.stick(2)
    sim.run(20)
    known = sim.engine.state
    other = Other(now=known.now, cluster=known.cluster, store=known.store)
    state, problem = unpacked(msgspec.msgpack.encode(other, enc_hook=methodcaller("packed")))
    assert problem == ""
    engine = Engine(state=state)
    assert engine.incidents() == sim.incidents() != ()
    assert engine.status(sim.now) == sim.engine.status(sim.now)

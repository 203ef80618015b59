"""What was told is in the log, and stays as it was told, whatever is made of the events before."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from ray_sentinel.engine.actions import AnyAction, Publish
from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import AnyEvent, IncidentTold
from ray_sentinel.engine.incidents.lifecycle import IncidentLifecycle
from ray_sentinel.engine.state import unpacked
from ray_sentinel.model.incident import Incident
from tests.support.engine_events import stories
from tests.support.engine_sim import ATTACHED, Sim

SLOW = settings(
    deadline=None,
    max_examples=15,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def written_and_read(events: list[AnyEvent]) -> list[AnyEvent]:
    """As they come back from the disk."""
    lines = map(msgspec.json.encode, events)
    decoder = msgspec.json.Decoder(AnyEvent)
    return list(map(decoder.decode, lines))


def replayed(events: list[AnyEvent]) -> Engine:
    engine = Engine()
    for event in written_and_read(events):
        engine.handle(event)
    return engine


def told(events: list[AnyEvent]) -> dict[str, Incident]:
    """The incidents as they were told last."""
    found = [event.incident for event in events if isinstance(event, IncidentTold)]
    return {incident.id: incident for incident in found}


def hung(attached: bool = True) -> Sim:
    sim = Sim(attached=attached)
    sim.run(60)
    sim.stick(2)
    sim.run(30)
    return sim


@SLOW
@given(stories())
def test_any_log_replays_to_what_the_engine_knew(events: list[AnyEvent]) -> None:
    live, again = Engine(), replayed(events)
    for event in events:
        live.handle(event)
    assert again.unanswered() == live.unanswered()
    one, other = unpacked(again.state.packed())[0], unpacked(live.state.packed())[0]
    assert one == other


@ATTACHED
def test_what_is_told_follows_in_the_log_and_changes_nothing(attached: bool) -> None:
    sim = hung(attached)
    published = [action.incident for action in sim.actions if isinstance(action, Publish)]
    found = [event.incident for event in sim.log if isinstance(event, IncidentTold)]
    assert [(one.id, one.state) for one in found] == [(one.id, one.state) for one in published]
    (known,) = sim.incidents()
    assert found[-1] == known
    before = sim.engine.state.packed()
    assert sim.engine.handle(IncidentTold(time=sim.now, incident=found[-1])) == []
    assert sim.engine.state.packed() == before


@ATTACHED
def test_a_version_that_finds_nothing_knows_what_was_told_and_goes_on_with_it(
    attached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sim = hung(attached)
    with monkeypatch.context() as patch:
        patch.setattr(IncidentLifecycle, "found", lambda *_: list[AnyAction]())
        engine = replayed(sim.log)
    assert {one.id: one for one in engine.incidents()} == told(sim.log)
    # It is found by the rules again, and is the same incident.
    sim.engine = engine
    sim.run(20)
    assert {one.id: one for one in sim.incidents()} == told(sim.log)
    sim.rank(2).stuck = False
    sim.begin_step()
    sim.run(15)
    (over,) = sim.incidents()
    assert (over.id, over.state) == ("0001", "resolved")


def test_a_version_that_found_another_by_the_same_number_finds_it_again() -> None:
    sim = hung()
    (ours,) = sim.incidents()
    other = msgspec.structs.replace(ours, job="another", attempt=3, bundle="/incidents/other")
    assert sim.engine.handle(IncidentTold(time=sim.now, incident=other)) == []
    sim.run(30)
    first, second = sim.incidents()
    assert first == other
    assert (second.id, second.job, second.kind) == ("0002", ours.job, ours.kind)
    sim.run(60)
    states = {one.id: one.state for one in sim.incidents()}
    assert states == {"0001": "resolved", "0002": "explained"}, "the other's job is not there"


def test_a_suspicion_that_another_version_had_confirmed_is_captured() -> None:
    sim = Sim()
    sim.run(60)
    sim.stick(2)
    while not sim.engine.incidents(everything=True):
        sim.run(0.5)
    (suspected,) = sim.engine.incidents(everything=True)
    assert suspected.state == "suspected"
    confirmed = msgspec.structs.replace(
        suspected, state="confirmed", confirmed_at=sim.now, summary="told by another version"
    )
    sim.feed(IncidentTold(time=sim.now, incident=confirmed))
    sim.run(10)
    (known,) = sim.incidents()
    assert (known.id, known.state, known.summary) == ("0001", "explained", confirmed.summary)


def test_what_was_told_as_over_is_over() -> None:
    sim = hung()
    (known,) = sim.incidents()
    over = msgspec.structs.replace(known, state="resolved", resolved_at=sim.now)
    sim.feed(IncidentTold(time=sim.now, incident=over))
    assert sim.incidents() == (over,)
    assert not sim.engine.store.cases
    assert not sim.engine.store.orphans

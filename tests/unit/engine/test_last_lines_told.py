"""What ranks wrote last is asked for, and told in place of sending people to look for it."""

from __future__ import annotations

import pytest

from ray_sentinel.engine.actions import Capture
from ray_sentinel.engine.events import NoticeSent
from ray_sentinel.engine.incidents.milestones import FIRST, MOST, added
from ray_sentinel.engine.verdicts.last_lines import ECHOES
from ray_sentinel.model.fault_kinds import READ_LAST_LINES
from ray_sentinel.model.incident import Incident, Milestone, RankLog
from tests.support.engine_sim import Sim


def log_of(number: int, **fields: object) -> RankLog:
    known = {"rank": number, "host": "host1", "pid": 1000 + number, "ended": True}
    return RankLog(**{**known, **fields})  # type: ignore[arg-type]


def captured(*logs: RankLog, lasts: float = 5) -> tuple[Sim, Incident]:
    sim = Sim()
    sim.logs = logs
    sim.run(30)
    sim.end(2, code=1)
    sim.run(lasts)
    (incident,) = sim.incidents()
    return sim, incident


def steps(incident: Incident) -> tuple[str, ...]:
    assert incident.verdict is not None
    return incident.verdict.next_steps


def test_a_capture_is_of_those_that_ended_too() -> None:
    sim, _ = captured()
    (capture, *_) = [action for action in sim.actions if isinstance(action, Capture)]
    assert [rank.id.rank for rank in capture.gone] == [2]


def test_the_exception_takes_the_place_of_the_way_to_it() -> None:
    _, incident = captured(log_of(2, file="logs/rank-2.log", telling="ValueError: x"))
    assert steps(incident)[:2] == (
        "Rank 2 on host1 ended with: ValueError: x (logs/rank-2.log in the bundle)",
        ECHOES,
    )
    assert READ_LAST_LINES not in steps(incident)
    assert incident.logs[0].telling == "ValueError: x"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"file": "logs/rank-2.log"}, "none of which names an error"),
        ({"file": "logs/rank-2.log", "shared": True}, "of others in between"),
        ({"missing": "stdout is a pipe"}, "are not in the bundle: stdout is a pipe."),
    ],
)
def test_what_is_not_known_is_not_promised(fields: dict[str, object], said: str) -> None:
    _, incident = captured(log_of(2, **fields))
    assert said in steps(incident)[0]
    assert READ_LAST_LINES not in steps(incident)


def test_of_a_rank_that_lives_and_of_others_no_step_is_made() -> None:
    living = log_of(2, file="logs/rank-2.log", ended=False, telling="ValueError: got over")
    _, incident = captured(living, log_of(3, file="logs/rank-3.log", telling="ValueError: an echo"))
    assert steps(incident)[0] == READ_LAST_LINES
    assert len(incident.logs) == 2


def test_a_later_capture_repeats_nothing_and_loses_nothing() -> None:
    sim, before = captured(log_of(2, file="logs/rank-2.log", telling="ValueError: x"))
    sim.logs = (log_of(2, missing="its agent did not say"),)
    sim.run(400)
    (after,) = sim.incidents()
    assert sum(step.state == "captured" for step in after.history) > 1
    assert steps(after) == steps(before)
    assert after.logs == before.logs


def test_the_way_to_the_verdict_is_kept_in_steps() -> None:
    sim, incident = captured()
    said = [(step.what, step.text) for step in incident.milestones]
    assert ("ended", "rank 2") in said
    assert any(what == "last progress" and text.startswith("rank 2, step") for what, text in said)
    assert any(what == "stacks" and text.startswith("round 1 of 5 ranks: ") for what, text in said)
    times = [step.at for step in incident.milestones]
    assert times == sorted(times)
    sim.feed(NoticeSent(time=sim.now, incident=incident.id, state="confirmed"))
    (told,) = sim.incidents()
    assert told.milestones[-1] == Milestone(sim.now, "notified", "as confirmed")


def test_steps_are_bounded_and_the_first_ones_stay() -> None:
    steps: tuple[Milestone, ...] = ()
    for number in range(500):
        steps = added(steps, Milestone(float(number), "stacks", str(number)))
    assert len(steps) == MOST
    assert [step.at for step in steps[:FIRST]] == list(map(float, range(FIRST)))
    assert steps[-1].at == 499.0

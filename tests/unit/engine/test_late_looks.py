"""Looks that a crowded node takes late: two of one moment tell no standstill."""

from __future__ import annotations

import math

import msgspec
import pytest

from ray_sentinel.engine.actions import TakeStacks
from ray_sentinel.engine.events import StacksTaken
from ray_sentinel.model.stacks import StackFact
from tests.support.engine_sim import ROUND_SECONDS, START, Sim, SimRank

MOVES_EVERY = 1.5
"""Seconds after which the slow rank is at another place."""


class Crowded(Sim):
    """All looks that were asked for are taken together, every ``every`` seconds; each node's wall
    clock is ``ahead``."""

    def __init__(self, every: float, ahead: float) -> None:
        super().__init__()
        self.every, self.ahead = every, ahead
        self.shifts = dict.fromkeys((node.id for node in self.nodes), ahead)
        self.looks_at = START
        self.slow: int | None = None
        self.stack_answer = self.seen

    def seen(self, rank: SimRank) -> StackFact:
        fact = msgspec.structs.replace(self.fact(rank), at=self.looks_at + self.ahead)
        if rank.number == self.slow:
            turn = int((self.looks_at - START) / MOVES_EVERY)
            place = (f"part_{turn} (train.py:{10 * turn})",)
            fact = msgspec.structs.replace(fact, signature=("main (train.py:1)", *place))
        return fact

    def _answer_with_stacks(self, action: TakeStacks) -> None:
        self.looks_at = START + math.ceil((self.now - START + 0.1) / self.every) * self.every
        at = self.looks_at + 0.1
        for _ in range(action.looks):
            taken = self._look(action, at)
            if at - self.now <= ROUND_SECONDS:
                self.pending.append((at, taken))
                continue
            told = self.now + ROUND_SECONDS
            late = msgspec.structs.replace(taken, asked_at=self.now)
            self.pending.append((told, msgspec.structs.replace(taken, time=told, facts=())))
            self.pending.append((at, late))


@pytest.mark.parametrize("ahead", [0.0, 3600.0])
@pytest.mark.parametrize("every", [0.5, 8.0, 8.5, 9.0])
def test_a_rank_that_goes_on_is_not_named_for_two_looks_of_one_moment(
    every: float, ahead: float
) -> None:
    sim = Crowded(every, ahead)
    sim.run(30)
    sim.stick(1)
    sim.slow = 1
    sim.run(25)
    assert [i.verdict and i.verdict.culprits for i in sim.incidents()] == []


@pytest.mark.parametrize("every", [0.5, 8.0, 8.5, 9.0])
def test_a_rank_that_stands_still_is_named_all_the_same(every: float) -> None:
    sim = Crowded(every, 0.0)
    sim.run(30)
    sim.stick(1)
    sim.run(40)
    assert sim.named() == [1]


def test_late_stacks_that_come_before_their_round_is_told_are_kept() -> None:
    sim = Sim()
    sim.run(30)
    sim.stick(2)
    sim.stacks_seconds = 1000.0
    sim.run(10.5)
    (case,) = sim.engine.store.cases.values()
    facts = (sim.fact(sim.rank(2)),)
    whole = StacksTaken(time=sim.now, incident=case.incident_id, round=case.asked_round)
    question = ("stacks", whole.incident, whole.round)
    sim.feed(msgspec.structs.replace(whole, facts=facts, asked_at=sim.now - 1.0))
    assert question in sim.engine.state.unanswered, "the round is not told yet"
    sim.feed(whole)
    assert facts[0].process in case.rounds[-1][1]
    assert question not in sim.engine.state.unanswered
    assert case.early == {}


def test_two_looks_of_one_moment_tell_no_standstill_but_movement() -> None:
    sim = Sim()
    sim.run(30)
    sim.stick(2)
    sim.run(10.5)
    (case,) = sim.engine.store.cases.values()
    fact = sim.fact(sim.rank(2))
    process = fact.process

    def look(number: int, at: float, place: str) -> None:
        seen = msgspec.structs.replace(fact, at=at, signature=(place,))
        case.add_round(at, number, (seen,))

    began = sim.now
    look(1, began, "one (train.py:1)")
    look(2, began + 0.2, "one (train.py:1)")
    assert (case.movement(process), case.times_seen(process)) == ("unknown", 1)
    look(3, began + 3.0, "one (train.py:1)")
    assert (case.movement(process), case.times_seen(process)) == ("stuck", 2)
    look(4, began + 3.2, "other (train.py:2)")
    assert (case.movement(process), case.times_seen(process)) == ("moved", 1)

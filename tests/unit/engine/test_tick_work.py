"""A tick looks closer only at ranks that show something: of thousands nearly none does."""

from __future__ import annotations

import pytest

from ray_sentinel.engine.events import Tick
from ray_sentinel.engine.ranks import RankView
from tests.support.engine_sim import Sim


def test_ranks_that_are_well_are_not_looked_at_closer(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = Sim()
    sim.run(30)
    asked: list[int] = []
    held, dying = RankView.held, RankView.dying

    def count_held(view: RankView, state: str, now: float) -> float:
        asked.append(view.rank.id.rank)
        return held(view, state, now)

    def count_dying(view: RankView) -> object:
        asked.append(view.rank.id.rank)
        return dying(view)

    monkeypatch.setattr(RankView, "held", count_held)
    monkeypatch.setattr(RankView, "dying", count_dying)
    sim.engine.handle(Tick(time=sim.now))
    assert asked == []
    sim.ranks[4].state = "T"
    sim.run(4)
    assert 4 in asked
    assert sim.named() == [4]


def test_words_of_one_that_is_ending_are_still_heard() -> None:
    sim = Sim()
    sim.run(30)
    sim.ranks[3].words, sim.ranks[3].words_at = "ValueError: no", sim.now
    sim.ranks[3].stuck = True
    sim.run(1)
    (job,) = sim.engine.view.jobs.values()
    assert [exit_.rank.id.rank for _, exit_ in job.exits_and_dying()] == [3]

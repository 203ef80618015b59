"""Which stacks a verdict shows, and for whom."""

from __future__ import annotations

from ray_sentinel.engine.incidents.case import Case
from ray_sentinel.engine.verdicts.judgement import MOST_RANKS_TEXT, MOST_STACKS
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.stacks import StackFact, Tool
from tests.support.engine_sim import Sim


def verdict_of(sim: Sim, stuck: int) -> tuple[tuple[int | None, int, str], ...]:
    """(Rank, alike, their ranks) of each stack."""
    sim.run(60)
    sim.stick(stuck, activity="sleep")
    sim.run(60)
    (incident,) = sim.incidents()
    assert incident.verdict is not None
    shown = incident.verdict.stacks
    return tuple((one.rank.rank if one.rank else None, one.alike, one.alike_ranks) for one in shown)


def test_the_culprit_is_shown_for_itself_and_one_waiter_for_all() -> None:
    culprit, *others = verdict_of(Sim(world=8, nodes=2), 3)
    assert culprit == (3, 1, "")
    assert [alike for _, alike, _ in others] == [7]
    assert others[0][2] == "0-2, 4-7"


def test_many_ranks_are_said_in_short() -> None:
    stacks = verdict_of(Sim(world=64, nodes=8), 5)
    assert len(stacks) <= MOST_STACKS
    assert sum(alike for _, alike, _ in stacks) == 64
    assert all(len(ranks) <= MOST_RANKS_TEXT + 5 for *_, ranks in stacks)


def test_what_is_shown_says_what_the_rounds_before_showed() -> None:
    sim = Sim(world=8, nodes=2)
    verdict_of(sim, 3)
    (incident,) = sim.incidents()
    assert incident.verdict is not None
    assert all(one.looks > 1 and one.before == () for one in incident.verdict.stacks)


def fact(signature: tuple[str, ...], tool: Tool = "py-spy") -> StackFact:
    return StackFact(process=ProcessId("a", 7), signature=signature, tool=tool)


def test_the_newest_round_that_shows_another_place_is_kept_beside_the_last() -> None:
    case = Case(incident_id="1", job_number=1, opened_at=0.0, asked_round_at=0.0)
    looks = [fact(("main", "load")), fact(("main", "read")), fact(("clone",), "gdb")]
    looks += [fact(("main", "sum")), fact(("main", "sum"))]
    for number, look in enumerate(looks, 1):
        case.take_round(float(number), number, (look,))
    told = case.with_looks(looks[-1])
    assert (told.looks, told.before) == (4, ("main", "read"))
    assert case.with_looks(looks[2]).before == ()

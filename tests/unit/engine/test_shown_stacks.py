"""Which stacks a verdict shows, and for whom."""

from __future__ import annotations

from ray_sentinel.engine.incidents.case import MOST_EARLIER, Case
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
        case.add_round(float(number), number, (look,))
    told = case.with_looks(looks[-1])
    assert (told.looks, told.before) == (4, ("main", "read"))
    assert case.with_looks(looks[2]).before == ()


def test_each_of_the_last_rounds_is_told_as_what_differs_from_the_one_that_is_shown() -> None:
    case = Case(incident_id="1", job_number=1, opened_at=0.0, asked_round_at=0.0)
    places = [("main", "load"), ("main", "sum", "add"), (), ("main",), ("main", "sum")]
    for number, place in enumerate(places, 1):
        case.add_round(2.0 * number, number, (fact(place),))
    told = case.with_looks(fact(places[-1])).earlier
    assert [(one.rounds_before, one.seconds_before) for one in told] == [
        (1, 2.0),
        (3, 6.0),
        (4, 8.0),
    ]
    assert [(one.shared, one.rest) for one in told] == [(1, ()), (2, ("add",)), (1, ("load",))]


def test_only_the_last_of_very_many_rounds_are_told() -> None:
    case = Case(incident_id="1", job_number=1, opened_at=0.0, asked_round_at=0.0)
    for number in range(30):
        case.add_round(float(number), number, (fact(("main", f"at {number}")),))
    told = case.with_looks(fact(("main", "at 29"))).earlier
    assert [one.rounds_before for one in told] == list(range(1, MOST_EARLIER + 1))
    assert case.with_looks(StackFact(process=ProcessId("b", 8))).earlier == ()

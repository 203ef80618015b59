"""An incident about a process that cannot go on lasts as long as that does, whoever else moves."""

from __future__ import annotations

import msgspec
import pytest

from ray_sentinel.model.stacks import StackFact
from tests.support.engine_sim import Sim
from tests.support.ray_stories.in_flight import InFlight, held_in_flight
from tests.support.ray_stories.jobs import rollouts
from tests.support.ray_stories.ranks import rank_stuck
from tests.support.ray_story import (
    COMPUTES,
    SELECTS,
    SLEEPS,
    STOPPED,
    WRITES,
    RayStory,
)
from tests.support.restarts import goes_on_alike

KEEPS_GIL = msgspec.structs.replace(SLEEPS, keeps_gil=True)
HELD = pytest.mark.parametrize(
    ("stack", "state", "kind"),
    [
        (STOPPED, "T", "rank-stopped"),
        (WRITES, "D", "kernel-blocked"),
        (KEEPS_GIL, "S", "gil-held"),
    ],
    ids=["stopped", "blocked", "gil"],
)


def states(story: RayStory) -> dict[str, str]:
    """Of each job in ``status``."""
    return {job.job: job.state for job in story.engine.status(story.now).jobs}


class TestInFlight:
    @HELD
    def test_it_stays_open_while_the_driver_takes_what_others_bring(
        self, stack: StackFact, state: str, kind: str
    ) -> None:
        flight = InFlight()
        flight.hold(stack, state)
        flight.run(40)
        story = flight.story
        assert (story.incident().kind, story.culprits()[0].actor) == (kind, "Rollout 0")

        def still() -> None:
            assert story.incident().resolved_at is None
            assert story.engine.status(story.now).state == "hung"

        flight.run(200, still)

    def test_a_stop_is_told_soon_though_nobody_waits_for_it(self) -> None:
        flight = InFlight()
        while int(flight.story.now) // 10 % 2:  # from now on the driver waits for any of them
            flight.run(1)
        flight.hold()
        began = flight.story.now
        flight.run(9)
        assert flight.story.chain() == [("driver", "Rollout.generate at Rollout 0", "called")]
        incident = flight.story.incident()
        assert incident.confirmed_at is not None
        assert incident.confirmed_at - began < 9.0
        assert incident.summary == (
            "Rollout 0 on host1 stands still in Rollout.generate: is stopped by a signal"
        )

    @HELD
    def test_it_is_over_soon_after_it_runs_again(
        self, stack: StackFact, state: str, kind: str
    ) -> None:
        flight = InFlight()
        flight.hold(stack, state)
        flight.run(60)
        flight.go_on()
        flight.run(10)
        assert flight.story.incident().state == "resolved"
        flight.run(100)
        assert flight.story.engine.status(flight.story.now).state == "healthy"

    def test_it_is_over_when_nothing_is_asked_of_it_any_more(self) -> None:
        flight = InFlight()
        flight.hold()
        flight.run(60)

        def without_it() -> None:
            flight.story.calls = [c for c in flight.story.calls if c.pid != flight.first.pid]

        flight.run(12, without_it)
        assert flight.story.incident().state == "resolved"
        flight.run(60, without_it)
        assert flight.story.incident().state == "resolved"

    def test_it_is_over_when_the_job_ends(self) -> None:
        story = held_in_flight()
        story.processes = []
        story.tell_table()
        story.run(90)
        assert story.incident().state == "resolved"

    def test_a_look_that_does_not_show_it_tells_nothing_of_it(self) -> None:
        flight = InFlight()
        flight.hold()
        flight.run(60)
        looks = flight.story.looks
        flight.story.unseen = [flight.first]
        flight.run(60)
        assert flight.story.looks > looks
        assert flight.story.incident().resolved_at is None

    def test_a_debugger_that_comes_to_it_does_not_let_it_go_on(self) -> None:
        flight = InFlight()
        flight.hold()
        flight.run(40)
        for state in "tT":
            flight.first.state = state
            flight.first.moved_at = flight.story.now
            flight.run(5)
            assert flight.story.incident().resolved_at is None

    def test_what_waits_for_its_disk_for_a_moment_holds_nobody_up(self) -> None:
        flight = InFlight()

        def writes() -> None:
            second = int(flight.story.now) % 10
            if second == 0:
                flight.hold(WRITES, "D")
            if second == 4:
                flight.go_on()

        flight.run(300, writes)
        assert flight.story.engine.incidents() == ()
        assert flight.story.looks > 0

    def test_c_code_may_keep_the_gil_for_longer_than_a_call_where_nobody_waits(self) -> None:
        flight = InFlight()

        def any_of_them() -> None:
            flight.main.stack = SELECTS

        flight.hold(KEEPS_GIL, "S")
        flight.run(40, any_of_them)
        assert flight.story.engine.incidents() == ()
        assert flight.story.looks > 1
        flight.run(20, any_of_them)
        assert flight.story.incident().kind == "gil-held"

    def test_an_idle_one_that_is_stopped_holds_nobody_up(self) -> None:
        flight = InFlight()
        flight.hold()
        flight.first.rests(flight.story.now)
        flight.first.stack = STOPPED

        def without_it() -> None:
            flight.story.calls = [c for c in flight.story.calls if c.pid != flight.first.pid]

        flight.run(120, without_it)
        assert flight.story.engine.incidents() == ()

    def test_what_runs_in_a_coroutine_of_one_that_is_stopped_is_told(self) -> None:
        flight = InFlight()
        flight.hold()

        def untitled() -> None:
            flight.first.title = flight.first.kind

        flight.run(20, untitled)
        assert [one.actor for one in flight.story.culprits()] == ["Rollout 0"]

        def still() -> None:
            untitled()
            assert flight.story.incident().resolved_at is None

        flight.run(60, still)

    def test_nobody_is_held_up_in_a_healthy_one(self) -> None:
        flight = InFlight()
        flight.run(300)
        assert flight.story.engine.incidents(everything=True) == ()
        assert flight.story.engine.status(flight.story.now).state == "healthy"

    @HELD
    def test_a_restart_on_the_way_changes_nothing(
        self, stack: StackFact, state: str, kind: str
    ) -> None:
        events = held_in_flight(stack, state).log
        goes_on_alike(events, set(range(0, len(events), 7)))


def test_what_runs_again_in_a_long_call_is_over_before_that_ends() -> None:
    story, main, (first, _) = rollouts()
    first.begins("generate", story.now, STOPPED)
    first.state = "T"
    story.call(main, first, "generate")
    story.run(30)
    assert story.incident().state == "explained"
    first.state, first.stack, first.goes_on = "S", COMPUTES, True
    story.run(6, lambda: first.works(story.now))
    assert story.incident().state == "resolved"
    story.run(300, lambda: first.works(story.now))
    assert len(story.engine.incidents()) == 1


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize(
    ("stack", "state"), [(STOPPED, "T"), (WRITES, "D")], ids=["stopped", "blocked"]
)
def test_a_rank_is_told_of_once_though_nobody_waits_for_it_alone(
    stack: StackFact, state: str, ranks: int
) -> None:
    flight = InFlight(ranks=ranks)
    flight.hold_rank(stack, state)
    flight.run(120)
    assert flight.story.incident().resolved_at is None
    assert [one.rank for one in flight.story.culprits()] == [0]
    assert "healthy" not in states(flight.story).values()
    flight.go_on()
    flight.run(60)
    assert flight.story.incident().state == "resolved"


class TestStatus:
    def test_ranks_of_a_job_with_an_incident_are_not_well(self) -> None:
        flight = InFlight(ranks=2)
        assert set(states(flight.story).values()) == {"healthy"}
        flight.hold()
        flight.run(40)

        def told() -> None:
            told = flight.story.engine.status(flight.story.now)
            state, verdict = told.state, told.verdict
            assert (state, "is well" in verdict) == ("hung", False)
            assert states(flight.story) == {
                "train_rl-2": "hung",
                "train_rl-2.Trainer": "stalled",
            }

        flight.run(60, told)
        flight.go_on()
        flight.run(20)
        assert set(states(flight.story).values()) == {"healthy"}

    def test_a_job_whose_rank_has_an_incident_is_not_well(self) -> None:
        story = rank_stuck()
        assert story.incident().job == "train_rl-2.Trainer"
        assert states(story) == {"train_rl-2": "hung", "train_rl-2.Trainer": "hung"}


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"state": "D", "wchan": "rpc_wait_bit_killable"}, "kernel-blocked"),
        ({"interpreter": "gil-held"}, "gil-held"),
        ({"state": "T"}, "rank-stopped"),
    ],
    ids=["blocked", "gil", "stopped"],
)
def test_a_rank_that_is_held_is_no_less_so_when_its_peers_go_on(
    changes: dict[str, str], kind: str
) -> None:
    sim = Sim()
    sim.run(30)
    sim.stick(2, **changes)
    sim.run(30)
    (incident,) = sim.engine.incidents()
    assert incident.kind == kind
    others = [rank for rank in sim.ranks if rank.number != 2]

    def apart() -> None:
        for rank in others:
            rank.step += 1
            rank.step_ended_at = sim.now
            rank.durations.append(1.0)
            rank.switches += 400
            rank.cpu += 0.5

    for _ in range(60):
        apart()
        sim.run(1.0)
        assert sim.engine.incidents()[0].resolved_at is None
    sim.rank(2).stuck = False
    sim.rank(2).state, sim.rank(2).interpreter = "S", "runs"
    sim.begin_step()
    sim.run(20)
    (incident,) = sim.engine.incidents()
    assert incident.state == "resolved"

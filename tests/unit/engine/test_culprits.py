"""Whole scenarios through the engine: who holds the others up is named, and when."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from ray_sentinel.engine.actions import TakeStacks
from ray_sentinel.evidence.stacks.frames.meanings import TASKLESS
from ray_sentinel.model.recorder import RecorderCulprit, RecorderFacts
from ray_sentinel.model.stacks import StackFact
from tests.support.engine_sim import ATTACHED, START, Sim, SimRank


@ATTACHED
@pytest.mark.parametrize("step_seconds", [0.1, 1.0])
def test_a_sleeping_rank_is_named_within_15_seconds(attached: bool, step_seconds: float) -> None:
    sim = Sim(attached=attached, step_seconds=step_seconds)
    sim.run(30)
    sim.stick(4)
    began = sim.now
    sim.run(40)
    assert sim.named() == [4]
    (incident,) = sim.incidents()
    assert incident.kind == "host-stuck"
    assert incident.confirmed_at is not None
    assert incident.confirmed_at - began <= 15
    assert incident.state == "explained"
    assert sim.engine.status(sim.now).state == "hung"


@pytest.mark.parametrize(
    ("operation", "kind"), [("all_reduce", "host-stuck"), ("barrier", "startup-stuck")]
)
def test_what_the_others_wait_in_tells_start_up_from_training(operation: str, kind: str) -> None:
    sim = Sim(attached=False)

    def answer(rank: SimRank) -> StackFact:
        return msgspec.structs.replace(sim.fact(rank), operation=operation if rank.waits else "")

    sim.stack_answer = answer
    sim.run(1)
    sim.stick(4)
    sim.run(90)
    (incident,) = sim.incidents()
    assert (sim.named(), incident.kind) == ([4], kind)


@ATTACHED
def test_a_stopped_rank_is_named_within_5_seconds(attached: bool) -> None:
    sim = Sim(attached=attached)
    sim.run(30)
    sim.stick(2, state="T")
    began = sim.now
    sim.run(20)
    (incident,) = sim.incidents()
    assert (sim.named(), incident.kind) == ([2], "rank-stopped")
    assert incident.confirmed_at is not None
    assert incident.confirmed_at - began <= 5


def test_a_held_gil_is_named_within_5_seconds() -> None:
    sim = Sim()
    sim.run(30)
    sim.stick(1, interpreter="gil-held", activity="unknown")
    began = sim.now
    sim.run(20)
    (incident,) = sim.incidents()
    assert (sim.named(), incident.kind) == ([1], "gil-held")
    assert incident.confirmed_at is not None
    assert incident.confirmed_at - began <= 5


@pytest.mark.parametrize("spinning", [True, False])
def test_a_held_gil_is_seen_from_outside(spinning: bool) -> None:
    sim = Sim(attached=False)
    sim.run(30)
    sim.stick(1, holds_gil=True, activity="unknown", waits=None, spinning=spinning)
    began = sim.now
    sim.run(20)
    (incident,) = sim.incidents()
    assert (sim.named(), incident.kind) == ([1], "gil-held")
    assert incident.confirmed_at is not None
    assert incident.confirmed_at - began <= 4.2
    alone = [a for a in sim.actions if isinstance(a, TakeStacks) and a.looks > 1]
    assert {rank.id.rank for action in alone for rank in action.ranks} == {1}


@pytest.mark.parametrize("seconds", [3.5, 6.0, 9.0])
def test_stacks_that_come_late_show_a_held_gil_all_the_same(seconds: float) -> None:
    """On a crowded machine no agent may answer before its round is told without it."""
    sim = Sim(attached=False)
    sim.run(30)
    sim.stick(1, holds_gil=True, activity="unknown", waits=None, active=False)
    sim.stacks_seconds = seconds
    began = sim.now
    sim.run(40)
    (incident,) = sim.incidents()
    assert (sim.named(), incident.kind) == ([1], "gil-held")
    assert incident.confirmed_at is not None
    assert incident.confirmed_at - began <= 6.5 + seconds


@pytest.mark.parametrize("seconds", [3.5, 6.0, 9.0])
@ATTACHED
def test_stacks_that_come_late_complete_their_rounds(attached: bool, seconds: float) -> None:
    sim = Sim(attached=attached)
    sim.run(30)
    sim.stick(1)
    sim.stacks_seconds = seconds
    began = sim.now
    sim.run(60)
    (incident,) = sim.incidents()
    assert (sim.named(), incident.kind) == ([1], "host-stuck")
    assert incident.confirmed_at is not None
    assert incident.confirmed_at - began <= 20 + seconds


def test_a_late_look_at_what_was_before_is_neither_news_nor_proof() -> None:
    """Rank 1 has the GIL for a moment, and the looks of then come when it has long gone on."""
    sim = Sim(attached=False, step_seconds=6.0)
    sim.run(90)
    sim.stacks_seconds = 8.0
    for _ in range(8):
        sim.stick(1, holds_gil=True, activity="unknown", waits=None, active=False)
        sim.run(5)
        sim.rank(1).stuck, sim.rank(1).holds_gil = False, None
        sim.run(10)
    assert sim.incidents() == ()


@pytest.mark.parametrize("late", [0.0, 1.0, 2.0, 2.5])
def test_who_is_stopped_while_it_has_the_gil_is_stopped(late: float) -> None:
    """On a crowded machine stacks show the GIL held before a look shows the state."""
    sim = Sim(attached=False)
    sim.run(60)
    sim.stick(1, holds_gil=True, activity="unknown", waits=None)
    sim.run(late)
    sim.rank(1).state = "T"
    sim.run(10)
    (incident,) = sim.incidents()
    assert (sim.named(), incident.kind) == ([1], "rank-stopped")


def test_who_is_given_no_cpu_does_not_keep_the_gil() -> None:
    sim = Sim(attached=False)
    sim.run(30)
    sim.stick(1, holds_gil=True, activity="unknown", waits=None, active=True, state="R")
    sim.run(20)
    (incident,) = sim.incidents()
    assert (sim.named(), incident.kind) == ([1], "starved")


def test_who_is_held_by_a_debugger_is_stopped() -> None:
    sim = Sim()
    sim.run(30)
    sim.stick(1, activity="unknown", waits=False, state="t")
    sim.run(20)
    (incident,) = sim.incidents()
    assert (sim.named(), incident.kind) == ([1], "rank-stopped")


def test_an_actor_whose_task_has_ended_holds_a_dead_rank() -> None:
    sim = Sim()
    sim.run(30)
    sim.stick(1, activity="idle", waits=None, label=TASKLESS.label,
              where=("main_loop (ray/_private/worker.py:1069)",))  # fmt: skip
    sim.run(20)
    (incident,) = sim.incidents()
    assert (sim.named(), incident.kind) == ([1], "rank-dead")
    assert incident.verdict is not None
    reason = incident.verdict.culprits[0].reason
    assert reason.startswith("has ended: in no Ray task: its own has ended")


def test_a_frozen_rank_is_stopped_and_not_blocked() -> None:
    sim = Sim()
    sim.run(30)
    sim.stick(1, activity="unknown", waits=False, state="D", frozen=True, wchan="__refrigerator")
    sim.run(10)
    (incident,) = sim.incidents()
    assert (sim.named(), incident.kind) == ([1], "rank-stopped")
    assert incident.verdict is not None
    assert not [item for item in incident.verdict.evidence if "in state D" in item.text]


def test_a_rank_in_a_transfer_that_its_recorder_does_not_show_is_innocent() -> None:
    sim = Sim()
    sim.run(30)
    sim.stick(0)
    sim.stick(1, activity="collective-wait", waits=True, operation="send",
              where=("main (train.py:1)", "send (distributed_c10d.py:9)"))  # fmt: skip
    reason = "has not enqueued all_reduce, where 1 other rank waits; it has nothing pending"
    sim.recorder = RecorderFacts(
        kind="not-enqueued",
        culprits=tuple(
            RecorderCulprit(rank=rank, kind="not-enqueued", reason=reason) for rank in (0, 1)
        ),
        strength=0.95,
    )
    sim.run(20)
    (incident,) = sim.incidents()
    assert (sim.named(), incident.kind) == ([0], "host-stuck")


@pytest.mark.parametrize(
    ("ranks", "seconds", "waited_for"),
    [(6, 5.0, True), (6, 6.8, False), (6, 40.0, False), (600, 6.8, True), (600, 40.0, False)],
)
def test_recorders_that_come_late_are_waited_for_but_not_for_ever(
    ranks: int, seconds: float, waited_for: bool
) -> None:
    """All wait in one collective: stacks tell nobody apart, the recorders would. Those of many
    ranks, which come in turns, may take longer. Whoever they name after the verdict is named of the
    same incident, and captured."""
    sim = Sim(ranks, interval=5.0)
    sim.run(15)
    sim.stick(1, activity="collective-wait", waits=True,
              where=("main (train.py:1)", "all_reduce (distributed_c10d.py:99)"))  # fmt: skip
    reason = "has left out all_reduce number 31"
    sim.recorder = RecorderFacts(
        kind="collective-mismatch",
        culprits=(RecorderCulprit(rank=1, kind="collective-mismatch", reason=reason),),
        strength=0.9,
    )
    sim.recorder_seconds = seconds
    began = sim.now
    while not sim.incidents() or sim.incidents()[0].confirmed_at is None:
        sim.run(1)
        assert sim.now - began < 30
    (first,) = sim.incidents()
    assert sim.named() == ([1] if waited_for else [])
    sim.run(50)
    (incident,) = sim.incidents()
    assert (incident.id, incident.kind) == (first.id, "collective-mismatch")
    assert sim.named() == [1]
    captures = [step for step in incident.history if step.state == "captured"]
    assert len(captures) == (1 if waited_for else 2)


@pytest.mark.parametrize("elsewhere", [{3}, set(range(0, 1000, 2))], ids=["once", "half"])
def test_a_loop_in_python_is_neither_a_kept_gil_nor_movement(elsewhere: set[int]) -> None:
    sim = Sim(attached=False)
    sim.run(30)
    began = sim.now
    _go_round(sim, elsewhere)
    sim.run(60)
    (incident,) = sim.incidents()
    assert (sim.named(), incident.kind) == ([1], "cpu-spin")
    assert incident.confirmed_at is not None
    assert incident.confirmed_at <= began + 20


def test_a_loop_that_is_seen_late_is_called_one_after_all() -> None:
    sim = Sim(attached=False)
    sim.run(30)
    _go_round(sim, set(range(12, 1000)))
    sim.run(6)
    assert [incident.kind for incident in sim.incidents()] == ["gil-held"]
    sim.run(30)
    (incident,) = sim.incidents()
    assert (sim.named(), incident.kind) == ([1], "cpu-spin")
    assert "GIL" not in incident.summary


def test_a_debugger_that_shows_python_takes_the_kept_gil_back() -> None:
    sim = Sim(attached=False)
    sim.run(30)
    _go_round(sim, set())
    sim.capture_answer = lambda rank: msgspec.structs.replace(
        sim.fact(rank), tool="cuda-gdb", runs_python=rank.number == 1
    )
    sim.run(6)
    (incident,) = sim.incidents()
    assert (sim.named(), incident.kind) == ([1], "cpu-spin")
    assert "GIL" not in incident.summary
    sim.run(90)
    (incident,) = sim.incidents()
    assert (sim.named(), incident.kind) == ([1], "cpu-spin")


def _go_round(sim: Sim, elsewhere: set[int]) -> None:
    """Rank 1 in a loop of two lines, of which one takes nearly all the time; ``elsewhere``: the
    looks that find it in the other."""
    sim.stick(1, holds_gil=True, activity="unknown", waits=None, spinning=True, active=True)
    looks = itertools.count()

    def answer(rank: SimRank) -> StackFact:
        fact = sim.fact(rank)
        if rank.number != 1:
            return fact
        line = 163 if next(looks) in elsewhere else 164
        return msgspec.structs.replace(fact, signature=("main (train.py:1)", f"go (x.py:{line})"))

    sim.stack_answer = answer


@ATTACHED
def test_a_rank_in_the_kernel_is_named(attached: bool) -> None:
    sim = Sim(attached=attached)
    sim.run(30)
    sim.stick(0, state="D", wchan="rpc_wait_bit_killable")
    sim.run(20)
    (incident,) = sim.incidents()
    assert (sim.named(), incident.kind) == ([0], "kernel-blocked")
    assert incident.verdict is not None
    assert "rpc_wait_bit_killable" in incident.verdict.culprits[0].reason


@ATTACHED
def test_two_culprits_are_both_named(attached: bool) -> None:
    sim = Sim(world=8, attached=attached)
    sim.run(30)
    sim.stick(1)
    sim.stick(6, activity="input-wait")
    sim.run(30)
    assert sim.named() == [1, 6]


@ATTACHED
def test_one_that_only_stands_still_is_named_beside_one_that_is_stopped(attached: bool) -> None:
    sim = Sim(world=8, attached=attached)
    sim.run(30)
    sim.stick(2, state="T")
    sim.stick(5, activity="input-wait")
    sim.run(6)
    assert sim.named() == [2]
    sim.run(30)
    assert sim.named() == [2, 5]
    (incident,) = sim.incidents()
    assert incident.kind == "rank-stopped"
    told = "rank 2 on host0 is stopped; rank 5 on host1 waits for input"
    assert incident.summary.startswith(told)


@pytest.mark.parametrize("sure", [0.7, 0.9])
def test_the_flight_recorder_outweighs_the_stacks(sure: float) -> None:
    sim = Sim()
    sim.run(30)
    sim.stick(4, activity="collective-wait", waits=True)
    sim.recorder = RecorderFacts(
        kind="collective-mismatch",
        culprits=(RecorderCulprit(rank=4, kind="collective-mismatch", reason="in reduce"),),
        strength=sure,
    )
    sim.run(20)
    (incident,) = sim.incidents()
    assert (sim.named(), incident.kind) == ([4], "collective-mismatch")


def test_all_in_one_collective_is_not_blamed_on_anybody() -> None:
    sim = Sim()
    sim.run(30)
    sim.stick(4, activity="collective-wait", waits=True,
              where=("main (train.py:1)", "all_reduce (distributed_c10d.py:99)"))  # fmt: skip
    sim.run(60)
    (incident,) = sim.incidents()
    assert (sim.named(), incident.kind) == ([], "unknown")


def test_a_hang_that_ends_resolves_and_a_second_one_is_new() -> None:
    sim = Sim()
    sim.run(30)
    sim.stick(4)
    sim.run(20)
    sim.rank(4).stuck = False
    sim.begin_step()
    sim.run(30)
    assert [incident.state for incident in sim.incidents()] == ["resolved"]
    sim.stick(1)
    sim.run(60)
    assert len(sim.incidents()) == 2
    last = sim.incidents()[-1].verdict
    assert last is not None
    assert [culprit.rank for culprit in last.culprits] == [1]


def test_clocks_minutes_apart_change_nothing() -> None:
    sim = Sim(clock_skew=300.0)
    sim.run(30)
    sim.stick(2)
    began = sim.now
    sim.run(20)
    (incident,) = sim.incidents()
    assert sim.named() == [2]
    assert 8 <= (incident.confirmed_at or 0) - began <= 15


@pytest.mark.parametrize("seconds", [30.0, 600.0])
def test_clocks_that_are_set_back_stop_no_job(seconds: float) -> None:
    sim = Sim()
    sim.run(60)
    sim.skews = {node: skew + seconds for node, skew in sim.skews.items()}
    sim.run(100)
    assert not sim.incidents()


def test_processes_that_others_replaced_are_not_counted() -> None:
    sim = Sim(attached=False)
    sim.run(20)
    for rank in sim.ranks:
        rank.pid += 100
    sim.run(30)
    sim.stick(2)
    sim.run(20)
    assert "5 other ranks wait" in sim.incidents()[0].summary


def test_a_round_of_stacks_that_was_lost_does_not_delay_those_after_it() -> None:
    sim = Sim()
    sim.run(30)
    sim.stick(2)
    sim.run(10.5)
    (case,) = sim.engine.store.cases.values()
    fact = sim.fact(sim.rank(2))
    case.asked_round = 3
    case.add_round(sim.now, 3, (fact,))
    assert case.answered()
    case.add_round(sim.now, 2, (fact,))  # late: dropped
    assert [len(round_) for _, round_ in case.rounds][-1] == 1
    case.asked_round = 4
    assert not case.answered()


def test_old_rounds_of_stacks_are_let_go() -> None:
    sim = Sim()
    sim.run(30)
    sim.stick(2)
    sim.run(10.5)
    (case,) = sim.engine.store.cases.values()
    assert case.rounds == []
    began = sim.now
    fact = sim.fact(sim.rank(2))
    for number in range(1, 1000):
        case.add_round(began + number, number, (fact,))
    assert len(case.rounds) == 60
    assert case.movement(fact.process) in ("stuck", "in-place")


@pytest.mark.parametrize("beside", [1, 2])
def test_a_program_with_a_ranks_number_is_not_accused(beside: int) -> None:
    sim = Sim(attached=False)
    twin = SimRank(beside, sim.rank(beside).node, 2000, False, START, stuck=True, beside=True)
    twin.where, twin.activity = ("<module> (side_car.py:9)",), "sleep"
    sim.ranks.append(twin)
    sim.run(30)
    sim.stick(2)
    sim.run(30)
    assert set(sim.named()) == {2}
    (incident,) = sim.incidents()
    assert not any("rank 1 is" in item.text for item in incident.verdict.evidence)

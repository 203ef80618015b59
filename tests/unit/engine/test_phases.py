"""Phases: how long each may stay silent, what is learned, and what stacks show of them."""

from __future__ import annotations

import msgspec
import pytest

from ray_sentinel.config import Config
from ray_sentinel.engine.actions import TakeStacks
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.phases import MOST_KEPT, PhaseBook, format_duration, infer
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.stacks import Activity, StackFact
from tests.support.engine_sim import Sim


def fact(pid: int, activity: Activity, label: str = "") -> StackFact:
    return StackFact(process=ProcessId("h", pid), tool="py-spy", activity=activity, label=label)


def test_a_phase_has_its_built_in_budget_until_it_was_seen_twice() -> None:
    book = PhaseBook()
    assert book.budget("model_load") == 1800.0
    book.add("model_load", 300.0)
    assert book.budget("model_load") == 1800.0
    book.add("model_load", 420.0)
    assert book.budget("model_load") == 1260.0
    assert book.usual("model_load") == 420.0
    assert PhaseBook().bind({"model_load": 99.0}).budget("model_load") == 99.0


def test_what_ranks_do_at_one_time_is_one_occurrence_as_long_as_the_longest() -> None:
    book = PhaseBook()
    spans = ((100.0, 105.0), (100.5, 104.0), (103.0, 223.0), (104.0, 110.0))
    for pid, (begun, ended) in enumerate(spans):
        book.record("checkpoint", ProcessId("node", pid), begun, ended)
    assert book.usual("checkpoint") == 120.0
    assert book.budget("checkpoint") == 1800.0
    book.record("checkpoint", ProcessId("node", 0), 700.0, 730.0)
    assert book.budget("checkpoint") == 360.0


def test_ranks_that_take_turns_in_a_phase_are_in_it_many_times() -> None:
    book = PhaseBook()
    for turn in range(4):
        book.record("checkpoint", ProcessId("node", 0), 30.0 * turn, 30.0 * turn + 20.0)
        book.record("checkpoint", ProcessId("node", 1), 30.0 * turn + 15.0, 30.0 * turn + 40.0)
    assert book.usual("checkpoint") == 25.0
    assert book.budget("checkpoint") == 75.0


def test_one_checkpoint_of_many_ranks_narrows_nothing() -> None:
    sim = Sim(config=Config())
    sim.run(30)
    for seconds in (5, 200):
        for rank in sim.ranks:
            rank.phase, rank.phase_since = "checkpoint", sim.now
        sim.held = True
        sim.run(seconds)
        for rank in sim.ranks:
            rank.phase, rank.phase_since = "train", sim.now
        sim.held = False
        sim.run(20)
    assert sim.incidents() == ()


def test_a_phase_that_began_before_it_was_watched_is_learned_whole() -> None:
    sim = Sim()
    for rank in sim.ranks:
        rank.phase, rank.phase_since = "checkpoint", sim.now - 110.0
    sim.held = True
    sim.run(10)
    for rank in sim.ranks:
        rank.phase, rank.phase_since = "train", sim.now
    sim.run(5)
    (learned,) = sim.engine.view.learned()["job"]["checkpoint"]
    assert learned == pytest.approx(120.0, abs=1.5)


def test_what_was_learned_lives_on_in_the_next_run() -> None:
    book = PhaseBook()
    for seconds in range(1, 401):
        book.add("graph_capture", float(seconds))
    kept = book.learned()
    assert len(kept["graph_capture"]) <= MOST_KEPT
    assert (min(kept["graph_capture"]), max(kept["graph_capture"])) == (1.0, 400.0)
    again = PhaseBook()
    again.relearn(kept)
    assert again.usual("graph_capture") == 400.0
    assert again.budget("graph_capture") == 1200.0
    assert again.learned() == kept


def test_durations_that_can_be_none_are_not_taken_over() -> None:
    book = PhaseBook()
    book.relearn({"compile": [-1.0, 0.0, 1e12, float("nan"), 30.0]})
    assert book.learned() == {"compile": (30.0,)}


def test_books_are_kept_by_job() -> None:
    view = ClusterView().bind(Config())
    view.relearn({"a": {"compile": [100.0, 110.0]}, "b": {}})
    assert view.learned() == {"a": {"compile": (100.0, 110.0)}}


@pytest.mark.parametrize(
    ("activity", "label", "phase"),
    [
        ("compile", "compiling", "compile"),
        ("checkpoint", "in a checkpoint", "model_load"),
        ("startup", "capturing device graphs", "graph_capture"),
        ("startup", "importing a module", "import"),
        ("startup", "waiting for the other ranks to join", "process_group"),
        ("collective-wait", "setting up a communicator with the others", "process_group"),
        ("collective-wait", "in all_reduce", ""),
        ("input-wait", "waiting for the next batch of data", ""),
    ],
)
def test_most_stacks_show_the_phase(activity: Activity, label: str, phase: str) -> None:
    most = [fact(1, activity, label), fact(2, activity, label), fact(3, "lock-wait")]
    assert infer(most) == phase
    assert infer(most[1:]) == ""
    assert infer([]) == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (89, "89 s"),
        (240, "4 min"),
        (3600, "60 min"),
        (7200, "2 h"),
        (6000, "1 h 40 min"),
    ],
)
def test_durations_for_people(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def starting(activity: Activity, label: str) -> Sim:
    """Six ranks that nobody declares anything of, silent from the beginning."""
    sim = Sim(attached=False)
    for rank in sim.ranks:
        rank.stuck = True
    sim.stack_answer = lambda rank: msgspec.structs.replace(
        sim.fact(rank), activity=activity, label=label, waits_for_others=False
    )
    return sim


def test_a_silent_start_that_stacks_show_to_compile_is_no_incident() -> None:
    sim = starting("compile", "compiling")
    sim.engine.view.relearn({"job": {"compile": [100.0, 540.0]}})
    sim.run(400)
    assert sim.incidents() == ()
    (job,) = sim.engine.status(sim.now).jobs
    assert job.phase == "compile"
    assert job.expected.startswith("compile for ")
    assert job.expected.endswith("usually up to 9 min")


def test_beyond_its_budget_the_same_start_is_told() -> None:
    sim = starting("compile", "compiling")
    sim.engine.view.relearn({"job": {"compile": [30.0, 40.0]}})
    sim.run(400)
    assert [incident.suspects for incident in sim.incidents()] == [()]


def searching() -> Sim:
    """Six ranks that look for others a hundred times a second, and never get on."""
    sim = Sim(attached=False)
    sim.stack_answer = lambda rank: msgspec.structs.replace(
        sim.fact(rank),
        signature=("main (train.py:1)", "init_process_group (distributed_c10d.py:9)"),
        activity="startup",
        label="waiting for the other ranks to join",
        waits_for_others=True,
    )
    return sim


def test_a_search_for_ranks_is_no_training() -> None:
    sim = searching()
    sim.run(300)
    assert sim.incidents() == ()
    (job,) = sim.engine.status(sim.now).jobs
    assert job.phase == "process_group"
    assert job.expected.startswith("process_group for ")
    looks = [action for action in sim.actions if isinstance(action, TakeStacks)]
    assert len(looks) < 30
    sim.run(900)
    (incident,) = sim.incidents()
    assert incident.kind == "startup-stuck"
    assert "all 6 ranks are there" in incident.summary
    assert not sim.named()


def test_ranks_that_nobody_sees_are_told_when_the_others_wait_for_them() -> None:
    sim = searching()
    for rank in sim.ranks[3:5]:
        rank.exited = True  # nobody ever saw it
    sim.run(1300)
    (incident,) = sim.incidents()
    assert "ranks 0-2, 5 wait for ranks 3-4, which no agent sees" in incident.summary


def test_who_is_not_there_is_told_while_the_others_may_still_wait() -> None:
    sim = searching()
    sim.ranks[2].exited = True
    for rank in sim.ranks:
        rank.stuck = True
    sim.run(200)
    assert sim.incidents() == ()
    (job,) = sim.engine.status(sim.now).jobs
    assert job.expected.endswith("; rank 2 not there")


@pytest.mark.parametrize("label", ["the other ranks to join", "a communicator with the others"])
def test_a_rank_that_sleeps_while_the_others_wait_for_it_to_join_is_named(label: str) -> None:
    sim = searching()
    for rank in sim.ranks:
        rank.stuck = True
    joins = sim.stack_answer
    sim.stack_answer = lambda rank: (
        sim.fact(rank)
        if rank.number == 3
        else msgspec.structs.replace(joins(rank), label=f"waiting for {label}")
    )
    sim.stick(3)
    sim.run(90)
    assert sim.named() == [3]
    assert sim.incidents()[0].kind == "startup-stuck"


def test_ranks_that_join_anew_in_the_midst_of_training_have_the_time_of_a_start() -> None:
    """As where a job restarts within its processes: rank 0 needs half a minute longer."""
    sim, joins = Sim(attached=False), searching().stack_answer
    sim.run(60)
    sim.stick(0, where=("main (train.py:1)", "rebuild (restart.py:9)"), waits=None)
    sim.stack_answer = lambda rank: joins(rank) if rank.waits else sim.fact(rank)
    sim.run(40)
    sim.rank(0).stuck = False
    sim.run(20)
    assert sim.incidents() == ()


def test_a_communicator_in_the_midst_of_training_is_no_start() -> None:
    sim = Sim(attached=False)
    sim.run(30)
    sim.stick(3)
    began = sim.now
    sim.stack_answer = lambda rank: msgspec.structs.replace(
        sim.fact(rank),
        label="setting up a communicator with the others" if rank.waits else "sleeping",
    )
    sim.run(40)
    assert sim.named() == [3]
    assert sim.incidents()[0].confirmed_at - began <= 15


def test_where_no_stack_can_be_read_the_search_for_one_ends() -> None:
    sim = Sim(attached=False)
    sim.stack_answer = lambda rank: msgspec.structs.replace(sim.fact(rank), error="refused")
    sim.run(600)
    looks = [action for action in sim.actions if isinstance(action, TakeStacks)]
    assert 0 < len(looks) < 20
    assert sim.incidents() == ()


def test_a_search_that_ends_is_training_at_once() -> None:
    sim = searching()
    sim.run(60)
    sim.stack_answer = sim.fact
    sim.run(30)
    (job,) = sim.engine.status(sim.now).jobs
    assert job.phase == "train"
    sim.stick(3)
    began = sim.now
    sim.run(40)
    assert sim.named() == [3]
    assert sim.incidents()[0].confirmed_at - began <= 15

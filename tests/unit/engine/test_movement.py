"""What counts as movement of a job, and what does not."""

from __future__ import annotations

from itertools import count

import msgspec
import pytest

from ray_sentinel.engine.actions import AskRecorder
from ray_sentinel.engine.ranks import RankView
from ray_sentinel.model.identity import ProcessId, Rank, RankId
from ray_sentinel.model.progress import ProcessState, RankSnapshot
from ray_sentinel.model.stacks import StackFact
from tests.support.engine_sim import ATTACHED, Sim, SimRank

PROCESS = ProcessId("host", 1, 1)
IDLE = RankSnapshot(
    rank=Rank(id=RankId("job", 0, 0), process=PROCESS, node="n"),
    process=ProcessState(state="S"),
)


def after(**changes: object) -> RankSnapshot:
    return msgspec.structs.replace(IDLE, process=msgspec.structs.replace(IDLE.process, **changes))


def look(at: float, where: str) -> StackFact:
    return StackFact(process=PROCESS, at=at, signature=(where,))


def test_data_that_moves_is_a_sign_and_a_few_bytes_are_none() -> None:
    view = RankView.found(IDLE, "n", 0.0, 0.0)
    view.update(after(io_bytes=5_000), 1.0, 1.0)
    assert view.advanced_at == 0.0
    view.update(after(io_bytes=5_000_000), 2.0, 2.0)
    assert view.advanced_at == 2.0


def test_what_our_own_tools_cause_is_no_sign() -> None:
    view = RankView.found(IDLE, "n", 0.0, 0.0)
    view.update(after(io_bytes=5_000_000, main_switches=500), 1.0, 1.0, disturbed=True)
    assert (view.moved_at, view.advanced_at) == (0.0, 0.0)


def test_work_is_a_sign_of_life_and_not_of_getting_on() -> None:
    view = RankView.found(IDLE, "n", 0.0, 0.0)
    view.update(after(main_switches=500, main_cpu_seconds=0.3), 1.0, 1.0)
    assert (view.moved_at, view.advanced_at) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("cpu", "switches", "moved"),
    [
        (0.0001, 2, False),  # a wait with a time-out of half a second
        (0.0004, 5, False),  # JAX, which waits for arrays 200 ms at a time
        (0.0005, 6, False),
        (0.0012, 5, True),  # two small steps a second
        (0.0008, 20, True),  # ten very small ones
    ],
)
def test_waits_that_look_for_signals_now_and_then_are_no_work(
    cpu: float, switches: int, moved: bool
) -> None:
    view = RankView.found(IDLE, "n", 0.0, 0.0)
    view.update(after(main_switches=switches, main_cpu_seconds=cpu), 1.0, 1.0)
    assert (view.moved_at == 1.0) is moved


@pytest.mark.parametrize(
    ("cpu", "switches", "usual", "working"),
    [
        (0.0, 0, 0.002, False),  # asleep
        (0.002, 20, 0.002, False),  # sleeps 20 times a second
        (0.0057, 20, 0.1, False),  # tries 20 times a second to connect
        (0.0042, 22, 0.002, True),  # a small batch 20 times a second, in a small training
        (0.016, 8, 0.5, True),  # batches that wait long for a CPU
        (0.3, 20, 0.5, True),
        (0.004, 1, 0.002, False),  # one wake-up may take long, and says nothing
        (0.95, 20, 0.5, False),  # never leaves the CPU
    ],
)
def test_computing_in_turns_is_work_and_polling_is_none(
    cpu: float, switches: int, usual: float, working: bool
) -> None:
    view = RankView.found(IDLE, "n", 0.0, 0.0)
    view.update(after(main_cpu_seconds=usual, io_bytes=1_000_000), 1.0, 1.0)
    view.update(
        after(main_cpu_seconds=usual, main_switches=0, io_bytes=1_000_000), 1.0 + 5.0, 1.0 + 5.0
    )
    end = after(main_cpu_seconds=usual + cpu, main_switches=switches, io_bytes=1_000_000)
    view.update(end, 7.0, 7.0)
    assert view.working is working


def test_work_counts_for_some_seconds_for_looks_scatter() -> None:
    view = RankView.found(IDLE, "n", 0.0, 0.0)
    view.update(after(main_cpu_seconds=0.3, main_switches=20), 1.0, 1.0)
    view.update(after(main_cpu_seconds=0.3, main_switches=20), 3.0, 3.0)
    assert view.working
    view.update(after(main_cpu_seconds=0.3, main_switches=20), 6.0, 6.0)
    assert not view.working


@pytest.mark.parametrize(
    ("share", "sleeps", "working"),
    [
        (0.08, 12, True),
        (0.031, 5, True),  # as crowded as it was measured
        (0.45, 3.5, False),  # a loop of Python beside a companion
        (0.22, 1, False),
        (0.1, 0, False),  # a loop in C, or one whose lock nobody wants
    ],
)
def test_work_in_turns_is_told_from_a_loop_however_crowded_the_machine(
    share: float, sleeps: float, working: bool
) -> None:
    view = RankView.found(IDLE, "n", 0.0, 0.0)
    for second in range(1, 9):
        turn = after(
            state="R",
            main_cpu_seconds=share * second,
            main_switches=60 * second,
            main_sleeps=int(sleeps * second),
        )
        view.update(turn, float(second), float(second))
    assert view.working is working


def test_another_place_in_the_code_is_news_only_where_nothing_moved_in_between() -> None:
    view = RankView.found(IDLE, "n", 0.0, 0.0)
    view.apply_stack(look(1.0, "here"), job_moved=0.0)
    view.apply_stack(look(5.0, "there"), job_moved=4.0)
    assert view.advanced_at == 0.0
    view.apply_stack(look(6.0, "elsewhere"), job_moved=4.0)
    assert view.advanced_at == 6.0


def test_a_spinner_on_a_busy_node_does_not_make_its_job_move() -> None:
    sim = Sim(attached=False)
    sim.run(30)
    sim.stick(2, state="R", activity="unknown", waits=None, active=True)
    began = sim.now
    while sim.now < began + 16 and not sim.incidents():
        sim.rank(2).cpu += 0.2  # far from a whole CPU: others want it, too
        sim.rank(2).switches += 40
        sim.run(0.5)
    assert sim.named() == [2]
    assert sim.incidents()[0].kind == "cpu-spin"


def two_places(sim: Sim, number: int) -> None:
    """A rank asks something, sleeps, and asks again, for ever."""
    turns = count()

    def look(rank: SimRank) -> StackFact:
        asks = ("fetch (data.py:3)", "get (http.py:5)", "send (http.py:7)")
        where = asks if next(turns) % 2 else ("fetch (data.py:3)", "sleep (data.py:9)")
        return msgspec.structs.replace(sim.fact(rank), signature=where)

    sim.stack_answer = lambda rank: (look if rank.number == number else sim.fact)(rank)


@ATTACHED
def test_a_rank_that_asks_again_and_again_does_not_make_its_job_move(attached: bool) -> None:
    sim = Sim(world=8, nodes=2, attached=attached)
    sim.run(30)
    sim.stick(5, activity="sleep")
    two_places(sim, 5)
    sim.run(30)
    assert sim.incidents() == ()
    sim.run(15 if attached else 100)
    assert set(sim.named()) <= {5}
    assert sim.engine.status(sim.now).state == "hung"


def test_a_rank_at_work_that_comes_back_to_where_it_was_gets_on() -> None:
    sim = Sim(world=8, nodes=2, attached=False)
    sim.run(30)
    sim.stick(5, activity="compute")
    two_places(sim, 5)
    for _ in range(240):
        sim.rank(5).cpu += 0.3
        sim.rank(5).switches += 20
        sim.run(0.5)
    assert sim.incidents() == ()


@pytest.mark.parametrize("share", [0.3, 0.5, 0.8, 1.0])
def test_waiters_that_poll_on_a_crowded_machine_do_not_make_their_job_move(share: float) -> None:
    sim = Sim(attached=False)
    sim.run(30)
    sim.stick(2, activity="sleep")
    crowd(sim, 25, share)
    assert sim.named() == [2]


@pytest.mark.parametrize("share", [0.3, 0.5, 0.8, 1.0])
def test_a_job_that_computes_on_a_crowded_machine_is_well(share: float) -> None:
    sim = Sim(attached=False)
    sim.run(30)
    sim.held = True
    places = count()
    sim.stack_answer = lambda rank: msgspec.structs.replace(
        sim.fact(rank), signature=("main (train.py:1)", f"layer{next(places)} (model.py:7)")
    )
    crowd(sim, 120, share)
    assert sim.incidents() == ()
    assert sim.engine.status(sim.now).state == "healthy"


def crowd(sim: Sim, seconds: float, share: float) -> None:
    """All but those who stand still want a CPU all the time, and are given a share of one."""
    for rank in sim.ranks:
        rank.state = "S" if rank.stuck else "R"
    for _ in range(int(2 * seconds)):
        for rank in sim.ranks:
            rank.cpu += 0.0 if rank.stuck else 0.5 * share
            rank.switches += 0 if rank.stuck else 30
        sim.run(0.5)


@pytest.mark.parametrize("same_pid", [False, True])
def test_the_second_culprit_is_named_after_the_first_that_was_proven(same_pid: bool) -> None:
    sim = Sim()
    if same_pid:  # on another host that means nothing
        sim.rank(4).pid = sim.rank(1).pid
    sim.run(30)
    sim.stick(1, state="T")
    sim.stick(4, activity="input-wait")
    sim.run(5)
    assert sim.named() == [1]
    sim.run(12)
    assert sim.named() == [1, 4]
    assert sim.incidents()[0].kind == "rank-stopped"


def test_one_that_is_stopped_alone_stays_alone() -> None:
    sim = Sim()
    sim.run(30)
    sim.stick(1, state="T")
    sim.run(40)
    assert sim.named() == [1]


def test_what_is_left_of_a_job_that_ends_has_its_time() -> None:
    sim = Sim()
    sim.run(30)
    sim.stick(3)
    for number in (0, 1, 2, 4, 5):
        sim.end(number, code=0)
    sim.run(45)
    assert sim.incidents() == ()
    sim.run(30)
    assert sim.named() == [3]


def test_most_ranks_in_the_kernel_are_no_ranks_fault() -> None:
    sim = Sim()
    sim.run(30)
    for number in range(6):
        sim.stick(number, state="D", wchan="rpc_wait_bit_killable", activity="storage-wait")
    sim.run(60)
    assert (sim.named(), sim.incidents()[0].kind) == ([], "stall")


@pytest.mark.parametrize("attached", [True, False])
def test_a_rank_that_goes_on_writing_while_the_others_wait_is_slow(attached: bool) -> None:
    sim = Sim(attached=attached)
    sim.run(30)
    sim.stick(0, activity="sleep")
    for _ in range(120):
        sim.rank(0).io += 400_000
        sim.run(0.5)
    sim.rank(0).stuck = False
    sim.run(20)
    assert sim.incidents() == ()


@pytest.mark.parametrize("attached", [True, False])
def test_what_was_written_up_to_the_hang_excuses_nobody(attached: bool) -> None:
    sim = Sim(attached=attached)
    sim.run(30)
    sim.rank(0).io += 40_000_000
    sim.stick(0, activity="sleep")
    began = sim.now
    sim.run(17)
    assert sim.named() == [0]
    assert (sim.incidents()[0].confirmed_at or 0) - began <= 16


@pytest.mark.parametrize("attached", [True, False])
def test_a_loop_that_computes_and_sleeps_in_one_line_is_slow(attached: bool) -> None:
    sim = Sim(attached=attached)
    sim.run(30)
    sim.stick(0, activity="sleep")
    for _ in range(60):
        sim.rank(0).cpu += 0.03
        sim.rank(0).switches += 10
        sim.run(0.5)
    sim.rank(0).stuck = False
    sim.run(20)
    assert sim.incidents() == ()


def test_a_case_that_waits_for_minutes_asks_no_more_and_names_nobody() -> None:
    sim = Sim()
    sim.run(60)
    sim.stick(0)
    asked = []
    for _ in range(400):
        sim.rank(0).io += 4 << 20
        sim.run(1)
        asked.append(sum(isinstance(action, AskRecorder) for action in sim.actions))
    assert 10 < asked[-1] == asked[-50], "asked, and at last no more"
    assert not sim.incidents()

"""Simulated jobs with known culprits, as JSON and as text, seen once and twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_sentinel.model.ras import RasFacts
from ray_sentinel.waitgraph.ras import explain
from tests.support.ras_sim.faults import AT_ONCE, PERSISTENT, Case
from tests.support.ras_sim.job import Job
from tests.support.ras_sim.render import as_json, as_text

FIXTURES = Path(__file__).parents[3] / "fixtures" / "nccl_ras"

LAYOUTS = [(2, 4, "dp"), (4, 8, "dp"), (2, 4, "tp"), (4, 8, "tp"), (1, 8, "dp")]
FORMATS = {
    "json": as_json,
    "broken json": lambda job: as_json(job, "2.28.9", broken=True),
    "verbose": as_text,
    "rccl": lambda job: as_text(job, "2.27.7", library="RCCL"),
}


def make(name: str, nodes: int, per_node: int, layout: str, seed: int) -> tuple[Case, Job]:
    if name == "chain" and layout == "dp":
        layout = "tp"
        nodes = max(nodes, 2)
    job = Job(seed, nodes, per_node, layout)
    job.run(job.random.randrange(20, 200))
    return PERSISTENT[name](job, job.random.randrange(len(job.peers))), job


def right(facts: RasFacts, case: Case) -> bool:
    """Exactly the culprits' processes are named, and none has a wrong number. Text may show a
    process only in a communicator other than the world's: then its number is not known."""
    peers = {case.job.peers[world].pid: world for world in case.culprits}
    return {c.pid for c in facts.culprits} == set(peers) and all(
        c.rank in (None, peers[c.pid]) for c in facts.culprits if c.pid is not None
    )


def named(facts: RasFacts) -> set[int | None]:
    return {culprit.rank for culprit in facts.culprits}


@pytest.mark.parametrize("style", FORMATS)
@pytest.mark.parametrize("name", PERSISTENT)
def test_two_polls_of_a_hang_name_the_culprit_and_nobody_else(name: str, style: str) -> None:
    for seed, (nodes, per_node, layout) in enumerate(LAYOUTS):
        case, job = make(name, nodes, per_node, layout, seed)
        first = FORMATS[style](job)
        job.wait(10)
        facts = explain({"1": first.encode(), "2": FORMATS[style](job).encode()})
        assert right(facts, case), (seed, facts)
        if "json" in style:
            assert named(facts) == case.culprits
        if name != "stall" or "json" in style:  # text shows no counts of ranks that agree
            assert facts.kind in case.kinds, (seed, facts)
        assert facts.polls == 2


@pytest.mark.parametrize("style", FORMATS)
@pytest.mark.parametrize("name", AT_ONCE)
def test_one_poll_is_enough_where_it_is_clear(name: str, style: str) -> None:
    for seed, (nodes, per_node, layout) in enumerate(LAYOUTS):
        case, job = make(name, nodes, per_node, layout, seed + 100)
        facts = explain({"1": FORMATS[style](job).encode()})
        assert right(facts, case), (seed, facts)
        if "json" in style:
            assert named(facts) == case.culprits
        assert facts.kind in case.kinds


@pytest.mark.parametrize("style", FORMATS)
@pytest.mark.parametrize("name", sorted(set(PERSISTENT) - set(AT_ONCE)))
def test_one_poll_names_nobody_where_it_is_not(name: str, style: str) -> None:
    for seed, (nodes, per_node, layout) in enumerate(LAYOUTS):
        _, job = make(name, nodes, per_node, layout, seed + 200)
        facts = explain({"1": FORMATS[style](job).encode()})
        assert not facts.culprits
        assert facts.kind in ("cannot-tell", "no-mismatch")


@pytest.mark.parametrize("style", FORMATS)
def test_a_job_that_moves_is_never_accused(style: str) -> None:
    for seed in range(40):
        job = Job(seed, 4, 8, "tp" if seed % 2 else "dp")
        job.run(50)
        polls = {}
        for number in range(2):
            for seat in job.world.seats:  # polled in the middle of a step
                seat.counts["AllReduce"] += job.random.random() < 0.3
            polls[str(number)] = FORMATS[style](job).encode()
            for seat in job.world.seats:
                seat.counts["AllReduce"] = max(s.counts["AllReduce"] for s in job.world.seats)
            job.run(7)
            job.wait(5)
        facts = explain(polls)
        assert not facts.culprits, facts
        assert facts.kind in ("running", "no-mismatch")


def test_who_is_left_behind_while_others_go_on_is_named_though_others_moved() -> None:
    job = Job(3, 2, 4)
    job.run(20)
    job.world.launch("AllReduce", 3, but=(5,))
    first = as_json(job).encode()
    job.wait(10)
    job.world.launch("AllReduce", 6, but=(5,))
    facts = explain({"1": first, "2": as_json(job).encode()})
    assert named(facts) == {5}
    assert facts.strength >= 0.8


def test_no_mismatch_is_not_called_health() -> None:
    job = Job(4, 2, 4)
    job.run(20)
    for text in (as_json(job), as_text(job), as_text(job, verbose=False)):
        facts = explain({"poll": text.encode()})
        assert facts.kind == "no-mismatch"
        assert any("does not prove health" in line for line in facts.evidence)


def test_polls_are_put_in_the_order_of_their_time() -> None:
    job = Job(5, 2, 4)
    job.run(20)
    job.world.launch("AllReduce", 3, but=(2,))
    early = as_json(job).encode()
    job.wait(30)
    job.world.launch("AllReduce", 2, but=(2,))
    late = as_json(job).encode()
    assert explain({"a": late, "b": early}) == explain({"a": early, "b": late})


def test_islands_of_one_job_are_each_judged_by_their_own_polls() -> None:
    one, two = Job(6, 1, 4), Job(7, 1, 4)
    one.run(20)
    two.run(30)
    two.world.launch("AllReduce", 4, but=(1,))
    facts = explain({"node0": as_json(one).encode(), "node1": as_json(two).encode()})
    assert [(c.host, c.pid) for c in facts.culprits] == [(two.peers[1].host, two.peers[1].pid)]


def test_several_outputs_in_one_file_are_several_polls() -> None:
    job = Job(8, 2, 4)
    job.run(9)
    for render in (as_json, as_text):
        job.world.launch("AllReduce", 1, but=(6,))
        both = "$ ncclras\n" + render(job) + "\nsome other line\n" + render(job)
        facts = explain({"log": both.encode()})
        assert facts.polls == 2
        assert named(facts) == {6}


def test_a_given_table_of_ranks_joins_by_host_and_pid() -> None:
    job = Job(9, 2, 4)
    job.run(9)
    job.world.launch("AllReduce", 5, but=(6,))
    turned = {place: 100 + rank for place, rank in job.ranks.items()}
    assert named(explain({"p": as_json(job).encode()}, ranks=turned)) == {106}
    by_name = {("node-" + host[-2:], pid): rank for (host, pid), rank in turned.items()}
    assert named(explain({"p": as_json(job).encode()}, ranks=by_name)) == {106}
    others = {("elsewhere", 7): 0}
    facts = explain({"p": as_json(job).encode()}, ranks=others)
    assert named(facts) == {None}
    assert facts.culprits[0].pid == job.peers[6].pid


def test_a_dead_process_is_not_taken_for_a_rank_of_another_host() -> None:
    job = Job(9, 2, 4)
    job.run(9)
    job.world.launch("AllReduce", 5, but=(6,))
    table = {place: rank for place, rank in job.ranks.items() if rank != 6}
    own, other = job.peers[6], job.peers[0]
    table[other.host, own.pid] = 50
    assert 50 not in named(explain({"p": as_json(job).encode()}, ranks=table))


def test_a_rank_of_a_small_communicator_gets_its_world_number() -> None:
    job = Job(10, 2, 4, "tp")
    job.run(9)
    job.comms[2].launch("AllReduce", 5, but=(6,))  # the second node's tensor-parallel group
    assert named(explain({"p": as_json(job).encode()})) == {6}


def test_equal_pids_on_one_host_are_told_apart_by_their_gpu() -> None:
    job = Job(11, 1, 8)
    for peer in job.peers:
        peer.pid = 7  # each in a PID namespace of its own
    job.run(9)
    job.world.launch("AllReduce", 5, but=(3,))
    assert named(explain({"p": as_json(job).encode()})) == {3}


def test_an_empty_set_of_polls_is_said() -> None:
    facts = explain({"x.txt": b"step 1 loss 2.0\n", "y": b""})
    assert facts.polls == 0
    assert len(facts.problems) == 2
    assert "x.txt" in facts.problems[0]


def test_a_watchdog_s_lines_in_the_same_file_are_mentioned() -> None:
    said = (FIXTURES / "healthy_while_hung.txt").read_bytes() + (
        b"\n[rank3]:[E ProcessGroupNCCL.cpp:607] [Rank 3] Watchdog caught collective operation "
        b"timeout: WorkNCCL(SeqNum=512, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=1)\n"
    )
    found = explain({"out.txt": said})
    assert any("number 512" in line and "ranks 3 timed out" in line for line in found.evidence)


def test_two_polls_for_people_show_no_movement_and_say_so() -> None:
    text = (FIXTURES / "healthy_while_hung.txt").read_bytes()
    found = explain({"1.txt": text, "2.txt": text})
    assert any("has no counts" in line for line in found.evidence)


def test_numbers_and_processes_of_one_node_are_joined_in_order() -> None:
    """2.24 and 2.25 give the numbers of missing ranks apart from their processes."""
    answer = (FIXTURES / "incomplete_2_24.txt").read_text()
    answer = answer.replace("The missing rank: 21", "The missing ranks: 20,21")
    one = "Process 3487984 on node 172.16.64.213 managing GPU 5"
    both = answer.replace(one, f"{one}\n    Process 3487983 on node 172.16.64.213 managing GPU 4")
    facts = explain({"1": both.encode()})
    assert {(c.rank, c.pid) for c in facts.culprits} == {(20, 3487983), (21, 3487984)}
    apart = answer.replace(one, f"{one}\n    Process 3487983 on node 172.16.64.214 managing GPU 4")
    facts = explain({"1": apart.encode()})
    assert all(c.rank is None for c in facts.culprits if c.pid is not None)

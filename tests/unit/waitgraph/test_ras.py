"""RAS answers as facts: who is behind, who called something else, and whom both keep waiting."""

from __future__ import annotations

import pytest

from ray_sentinel.model.ras import RasFacts
from ray_sentinel.waitgraph.ras import explain
from tests.support.ras_sim.job import Job
from tests.support.ras_sim.render import as_json, as_text


def polled(job: Job) -> RasFacts:
    return explain({"poll": as_json(job).encode()})


def job_of_eight() -> Job:
    job = Job(5, 2, 4)
    job.run(20)
    return job


def test_a_wrong_call_is_found_in_one_poll_though_another_rank_is_farther_behind() -> None:
    job = job_of_eight()
    job.world.launch("AllReduce", 9, but=(2, 3))
    job.world.launch("AllReduce", 5, but=(0, 1, 3, 4, 5, 6, 7))
    job.world.seat(2).counts["Broadcast"] += 1
    facts = polled(job)
    assert (facts.kind, [one.rank for one in facts.culprits]) == ("collective-mismatch", [2])


def test_where_calls_contradict_each_other_one_poll_names_nobody_for_being_behind() -> None:
    job = job_of_eight()
    job.world.launch("AllReduce", 8, but=(3,))
    job.world.seat(6).counts["AllReduce"] += 1
    job.world.seat(7).counts["Broadcast"] += 1
    facts = polled(job)
    assert (facts.kind, facts.culprits) == ("collective-mismatch", ())


def test_who_is_in_a_communicator_s_start_waits_for_those_that_are_not() -> None:
    job = Job(5, 2, 4, "tp")
    job.run(20)
    tensor = job.comms[1]
    for seat in tensor.seats:
        seat.init, seat.counts = 7, dict.fromkeys(seat.counts, 0)
    tensor.seat(2).member = False
    job.world.launch("AllReduce", 4, but=(0, 2))
    first = as_json(job).encode()
    job.wait(10)
    facts = explain({"1": first, "2": as_json(job).encode()})
    assert (facts.kind, [one.rank for one in facts.culprits]) == ("startup-stuck", [2])


def twice(job: Job) -> RasFacts:
    first = as_json(job).encode()
    job.wait(10)
    return explain({"1": first, "2": as_json(job).encode()})


@pytest.mark.parametrize("nodes", [1, 2])
def test_who_makes_the_calls_of_two_communicators_in_another_order_is_named(nodes: int) -> None:
    """In each of the two it is only behind, or ahead: they wait for each other in a circle."""
    job = Job(5, nodes, 8 // nodes, "tp")
    job.run(20)
    tensor = job.comms[1]
    tensor.launch("AllReduce", 1, but=(2,))
    wait_there = (seat.peer.world for seat in tensor.seats if seat.peer.world != 2)
    job.world.launch("AllReduce", 1, but=tuple(wait_there))
    facts = twice(job)
    assert (facts.kind, [one.rank for one in facts.culprits]) == ("collective-mismatch", [2])


@pytest.mark.parametrize(("others", "named"), [(0, []), (1, [3])])
def test_who_alone_has_launched_so_many_may_have_made_one_too_many(
    others: int, named: list[int]
) -> None:
    """Of a communicator of two, one has launched a call and the other has not."""
    job = Job(5, 2, 4, "tp")
    job.run(20)
    data = [comm for comm in job.comms if len(comm.seats) == 2]
    assert len(data) > 2
    (mine,) = (comm for comm in data if any(seat.peer.world == 3 for seat in comm.seats))
    for comm in data:
        comm.launch("AllReduce", others if comm is not mine else 0)
    mine.launch("AllReduce", 1, but=(3,))
    assert [one.rank for one in twice(job).culprits] == named


@pytest.mark.parametrize(("collectives", "named"), [(0, []), (1, [1, 5, 9, 13])])
def test_ranks_of_a_pipeline_that_are_behind_may_wait_for_one_of_them(
    collectives: int, named: list[int]
) -> None:
    """Four stages of four ranks. In the communicator of a pipeline there are sends alone."""
    job = Job(5, 4, 4, "tp")
    pipelines = job.comms[-4:]
    assert [seat.peer.world for seat in pipelines[1].seats] == [1, 5, 9, 13]
    for comm in job.comms:
        if comm not in pipelines:
            comm.launch("AllReduce", 7)
            comm.launch("AllReduce", 3, but=(1, 5, 9, 13))
        comm.launch("AllGather", collectives)
    assert [one.rank for one in twice(job).culprits] == named


@pytest.mark.parametrize("behind", [(), (3,)])
def test_where_only_the_error_of_a_peer_is_reported_nobody_is_named(behind: tuple[int]) -> None:
    """The peer has gone, and RAS does not list it any more: the job neither runs nor is whole."""
    job = job_of_eight()
    job.world.launch("AllReduce", 4, but=behind)
    job.world.seat(3).error = job.world.seat(5).error = 6
    facts = twice(job)
    assert (facts.kind, facts.culprits) == ("cannot-tell", ())


def test_errors_whose_details_are_cut_off_are_not_called_free_of_mismatch() -> None:
    job = job_of_eight()
    job.world.seat(3).error = 1
    table = as_text(job).partition("Errors\n======")[0]
    assert "ERROR" in table
    facts = explain({"poll": table.encode()})
    assert (facts.kind, facts.culprits) == ("cannot-tell", ())


def test_all_ranks_of_a_dead_process_are_named() -> None:
    job = job_of_eight()
    for peer in job.peers[4:6]:
        peer.pid, peer.dead = 77, True
    facts = polled(job)
    assert (facts.kind, [one.rank for one in facts.culprits]) == ("rank-dead", [4, 5])


def test_a_file_s_name_tells_nothing_of_how_whole_it_is() -> None:
    job = job_of_eight()
    job.world.launch("AllReduce", 9, but=(2,))
    text = as_json(job, "2.28.9", broken=True).encode()
    assert explain({"what is cut.json": text}).strength == explain({"a": text}).strength


def test_thousands_of_ranks_that_have_all_launched_something_else_are_judged_at_once() -> None:
    job = Job(7, 512, 8)
    for number, seat in enumerate(job.world.seats):
        seat.counts["AllReduce"], seat.counts["Broadcast"] = number, 4096 - number
    assert not polled(job).culprits


def test_ranks_that_agree_with_most_and_not_with_each_other_are_survived() -> None:
    job = job_of_eight()
    job.world.launch("AllReduce", 1, but=(2,))
    job.world.launch("AllGather", 1, but=(3,))
    assert not polled(job).culprits


def test_thousands_of_ranks_of_which_half_are_ahead_are_judged_at_once() -> None:
    job = Job(7, 512, 8)
    job.run(9)
    job.world.launch("AllReduce", 1, but=tuple(range(0, 4096, 2)))
    assert not polled(job).culprits

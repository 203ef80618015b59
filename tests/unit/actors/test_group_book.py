"""The process groups of jobs, from the dumps of their flight recorders."""

from __future__ import annotations

from ray_sentinel.actors.coordinator.gathering.group_book import (
    FRESH_SECONDS,
    MOST_JOBS,
    MOST_NAME,
    GroupBook,
    kinds_of,
)
from ray_sentinel.evidence.flight_recorder.reduced import reduce
from ray_sentinel.model.identity import ProcessId, Rank, RankId
from tests.support.recorder_sim.dumps import NCCL, write
from tests.support.recorder_sim.faults import simulate

TENSOR = ((0, 1), (2, 3), (4, 5), (6, 7))
DATA = ((0, 2, 4, 6), (1, 3, 5, 7))


def dumps(layout: str = "tp2dp4") -> dict[int, bytes]:
    machine = simulate(layout, "stop between", 2).machine
    return {rank: reduce(data) for rank, data in write(machine, NCCL).items()}


def ranks(job: str = "llama", attempt: int = 0, world: int = 8) -> list[Rank]:
    return [
        Rank(
            id=RankId(job, attempt, number), process=ProcessId("h", 100 + number), node="n",
            world_size=world,
        )
        for number in range(world)
    ]  # fmt: skip


def told(book: GroupBook) -> dict[str, tuple[tuple[int, ...], ...]]:
    (job,) = book.report().jobs
    return {kind.name: kind.groups for kind in job.kinds}


def test_the_kinds_that_tell_ranks_apart_those_with_the_most_groups_first() -> None:
    book = GroupBook()
    book.add(ranks(), dumps(), 1000.0)
    assert list(told(book).items()) == [("TENSOR", TENSOR), ("DATA", DATA)]
    (job,) = book.report(shift=5.0).jobs
    assert (job.job, job.attempt, job.at, job.ranks) == ("llama", 0, 1005.0, 8)


def test_where_all_ranks_are_in_one_group_nothing_is_told() -> None:
    assert kinds_of(dumps("dp8")) == ()
    book = GroupBook()
    book.add(ranks(), dumps("dp8"), 1000.0)
    book.add((), {}, 1000.0)
    book.add(ranks(), {}, 1000.0)
    assert book.report().jobs == ()


def test_fewer_dumps_do_not_take_the_place_of_more_and_as_many_do_later() -> None:
    book = GroupBook()
    book.add(ranks(), dumps(), 1000.0)
    few = {rank: data for rank, data in dumps().items() if rank < 3}
    for at, read in ((1001.0, few), (1001.0, dumps()), (2 * FRESH_SECONDS + 1000.0, few)):
        book.add(ranks(), read, at)
        assert book.report().jobs[0].at == 1000.0
    book.add(ranks(), dumps(), 1000.0 + FRESH_SECONDS)
    assert book.report().jobs[0].at == 1000.0 + FRESH_SECONDS
    assert told(book)["TENSOR"] == TENSOR


def test_what_cannot_be_read_is_left_out() -> None:
    broken = dumps() | {5: b"no dump"}
    assert {kind.name for kind in kinds_of(broken, 8)} == {"TENSOR", "DATA"}


def test_a_name_that_a_job_chose_is_one_short_line() -> None:
    long = "\x1b[31m" + 5000 * "x\n"
    machine = simulate("tp2dp4", "stop between", 2).machine
    groups = machine.job.groups
    for key, (desc, members) in list(groups.items()):
        groups[key] = (long if desc == "TENSOR" else desc, members)
    named = {rank: reduce(data) for rank, data in write(machine, NCCL).items()}
    (name,) = [kind.name for kind in kinds_of(named) if kind.name != "DATA"]
    assert len(name) <= MOST_NAME
    assert name.startswith("\\x1b[31mx x")


def test_the_jobs_that_were_told_of_first_are_forgotten() -> None:
    book = GroupBook()
    for number in range(MOST_JOBS + 3):
        book.add(ranks(f"job-{number}"), dumps(), float(number))
    assert [one.job for one in book.report().jobs] == [f"job-{n}" for n in range(3, MOST_JOBS + 3)]

"""A rank that an answer leaves out, and one that takes no part in what the others do."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ray_sentinel.waitgraph.ras import explain
from tests.support.ras_sim.job import Job
from tests.support.ras_sim.render import as_json

ABSENT = 5


def without(rank: int, text: str) -> bytes:
    """The answer without a word of ``rank`` in its first communicator."""
    answer: dict[str, Any] = json.loads(text)
    world = max(answer["communicators"], key=lambda communicator: communicator["size"])
    world["ranks"] = [member for member in world["ranks"] if member["rank"] != rank]
    answer["communicators"] = [world]
    return json.dumps(answer, indent=1).encode()


def polls(go_on: Callable[[Job], object]) -> tuple[str, str]:
    job = Job(3, 2, 4)
    job.run(20)
    first = as_json(job)
    job.wait(10)
    go_on(job)
    return first, as_json(job)


def test_a_rank_missing_from_two_answers_of_a_job_that_stands_still_is_named() -> None:
    first, second = polls(lambda job: None)
    facts = explain({"1": without(ABSENT, first), "2": without(ABSENT, second)})
    assert (facts.kind, facts.strength) == ("rank-unresponsive", 0.6)
    assert [culprit.rank for culprit in facts.culprits] == [ABSENT]


def test_a_rank_that_answered_before_is_named_with_its_process() -> None:
    first, second = polls(lambda job: None)
    facts = explain({"1": first.encode(), "2": without(ABSENT, second)})
    assert [culprit.rank for culprit in facts.culprits] == [ABSENT]
    assert facts.culprits[0].pid is not None


def test_one_answer_without_a_rank_names_nobody_and_is_not_called_free_of_mismatch() -> None:
    facts = explain({"1": without(ABSENT, polls(lambda job: None)[0])})
    assert (facts.kind, facts.culprits) == ("cannot-tell", ())
    assert f"the answer says nothing of rank {ABSENT}" in " ".join(facts.evidence)


def test_a_rank_missing_while_the_others_go_on_is_not_accused() -> None:
    first, second = polls(lambda job: job.run(7))
    facts = explain({"1": without(ABSENT, first), "2": without(ABSENT, second)})
    assert (facts.kind, facts.culprits) == ("running", ())


def test_a_truncated_answer_accuses_none_of_those_it_no_longer_lists() -> None:
    whole = json.dumps(json.loads(polls(lambda job: None)[0]), indent=1).encode()
    for size in range(len(whole) // 8, len(whole) - 1, len(whole) // 40):
        facts = explain({"1": whole[:size], "2": whole[:size]})
        assert not facts.culprits, size


def member(rank: int, launched: int) -> dict[str, Any]:
    return {
        "rank": rank,
        "host": "n0",
        "pid": 1000 + rank,
        "nvml_dev": rank,
        "status": {"init_state": 0, "async_error": 0},
        "collective_counts": {"AllReduce": launched},
    }


def with_spare(launched: int, second: int) -> bytes:
    """Eight ranks; the last takes no part in what seven of them do in a communicator of theirs."""
    world = [member(rank, 5 if rank < 7 else 0) for rank in range(8)]
    trainers = [member(rank, launched) for rank in range(7)]
    communicators = [
        {"hash": "0xa", "secondary_hash": "1", "size": 8, "ranks": world},
        {"hash": "0xb", "secondary_hash": "1", "size": 7, "ranks": trainers},
    ]
    time = f"2025-12-19 13:06:{second:02d}"
    answer = {"nccl_version": "2.28.7", "timestamp": time, "communicators": communicators}
    return json.dumps(answer).encode()


def test_a_spare_rank_that_nobody_waits_for_is_not_accused() -> None:
    facts = explain({"1": with_spare(500, 10), "2": with_spare(600, 30)})
    assert (facts.kind, facts.culprits) == ("running", ())


def test_the_same_rank_is_the_culprit_once_the_others_stand_still() -> None:
    facts = explain({"1": with_spare(500, 10), "2": with_spare(500, 30)})
    assert facts.kind == "not-enqueued"
    assert [culprit.rank for culprit in facts.culprits] == [7]

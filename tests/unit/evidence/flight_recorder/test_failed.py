"""Dumps that real ranks left when their collectives had failed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ray_sentinel.waitgraph.recorder import explain
from ray_sentinel.waitgraph.recorder_failed import explain_failed

FIXTURES = Path(__file__).parents[3] / "fixtures" / "flight_recorder"
FALLEN = {"gloo_failed_routed": (1, 2, 3, 6, 7)}
"""Where that is more than one."""
WRONG = {"gloo_failed_ahead": 6}
"""Where that is not rank 4."""


def dumps(scenario: str, *without: int) -> dict[int, bytes]:
    files = sorted((FIXTURES / scenario).glob("trace_*.json"))
    found = {int(file.stem.removeprefix("trace_")): file.read_bytes() for file in files}
    assert len(found) + len(FALLEN.get(scenario, (0,))) == 8
    return {rank: data for rank, data in found.items() if rank not in without}


@pytest.mark.parametrize(
    ("scenario", "overrun", "reason"),
    [
        (
            "gloo_failed_shape",
            2,
            "called all_reduce of 4096 Float (group 1[0,4,6] number 16), where ranks 0, 6 called",
        ),
        (
            "gloo_failed_dtype",
            2,
            "called all_reduce of 2048 Double (group 1[0,4,6] number 16), where ranks 0, 6 called",
        ),
        ("gloo_failed_small", 4, "was sent more than it had asked for"),
        ("gloo_failed_row", 5, "which it never had in that group before"),
        ("gloo_failed_rowsmall", 4, "was sent more than it had asked for"),
        ("gloo_failed_ahead", 7, "called all_gather of 24 Double (group 4[6] number 104), which"),
    ],
)
def test_the_wrong_call_is_named(scenario: str, overrun: int, reason: str) -> None:
    assert overrun not in dumps(scenario)
    found = explain_failed(dumps(scenario), overrun=[overrun], world_size=8)
    (culprit,) = found.culprits
    assert (culprit.rank, culprit.kind, found.kind) == (
        WRONG.get(scenario, 4),
        "collective-mismatch",
        "collective-mismatch",
    )
    assert reason in culprit.reason
    assert found.strength > 0.5


@pytest.mark.parametrize("scenario", ["gloo_failed_shape", "gloo_failed_dtype"])
def test_a_call_unlike_the_others_needs_no_word_of_the_fallen(scenario: str) -> None:
    for found in (explain_failed(dumps(scenario), world_size=8), explain(dumps(scenario))):
        assert [culprit.rank for culprit in found.culprits] == [4]


@pytest.mark.parametrize(
    "scenario", ["gloo_failed_small", "gloo_failed_row", "gloo_failed_rowsmall"]
)
def test_nobody_is_accused_where_it_is_not_known_who_fell(scenario: str) -> None:
    for found in (
        explain_failed(dumps(scenario), world_size=8),
        explain_failed(dumps(scenario), overrun=[4, 5], world_size=9),
        explain(dumps(scenario), world_size=8),
    ):
        assert found.culprits == ()


def test_a_call_before_the_last_is_compared_with_that_of_the_peers() -> None:
    """The peer as it would be had it failed by an error, which leaves a dump."""
    found = dumps("gloo_failed_ahead")
    peer = json.loads(found[5])
    peer["entries"] = peer["entries"][:-2]
    for entry in peer["entries"]:
        name, described = entry["process_group"]
        entry["process_group"] = ["4", described] if name == "3" else [name, described]
    facts = explain_failed({**found, 7: json.dumps(peer).encode()}, world_size=8)
    assert [culprit.rank for culprit in facts.culprits] == [6]


def test_a_call_that_went_well_is_not_held_against_a_rank() -> None:
    """Three calls that need all members came after it: it went well."""
    found = dumps("gloo_failed_ahead")
    odd = json.loads(found[6])
    later = [entry for entry in odd["entries"] if entry["collective_seq_id"] > 104]
    for number in (106, 107):
        odd["entries"].append({**later[-1], "collective_seq_id": number, "op_id": number,
                               "record_id": later[-1]["record_id"] + number - 105})  # fmt: skip
    facts = explain_failed({**found, 6: json.dumps(odd).encode()}, overrun=[7], world_size=8)
    assert 6 not in [culprit.rank for culprit in facts.culprits]


def test_two_that_contradict_each_other_accuse_nobody() -> None:
    found = explain_failed(dumps("gloo_failed_shape", 6), overrun=[2], world_size=8)
    assert found.culprits == ()


def test_a_dump_that_cannot_be_read_is_a_problem() -> None:
    found = explain_failed({**dumps("gloo_failed_row", 3), 3: b"{"}, overrun=[5], world_size=8)
    assert found.culprits == ()
    assert "dump 3" in found.problems[0]


def test_nothing_at_all() -> None:
    assert explain_failed({}, overrun=[1], world_size=4).kind == "cannot-tell"


def routed(*without: int) -> dict[int, bytes]:
    """Rank 4 sent all of its peers twice of what they had asked for; ranks 0 and 5 came late."""
    return dumps("gloo_failed_routed", *without)


def test_one_that_sent_all_of_its_peers_too_much_is_named() -> None:
    fallen = FALLEN["gloo_failed_routed"]
    found = explain_failed(routed(), overrun=fallen, world_size=8)
    assert [culprit.rank for culprit in found.culprits] == [4]
    assert found.kind == "collective-mismatch"
    assert "which it never had in that group before" in found.culprits[0].reason


def test_it_is_not_named_where_no_peer_shows_what_is_usual() -> None:
    fallen = (0, 5, *FALLEN["gloo_failed_routed"])
    found = explain_failed(routed(0, 5), overrun=fallen, world_size=8)
    assert found.culprits == ()


def test_it_is_not_named_where_a_rank_is_not_accounted_for() -> None:
    found = explain_failed(routed(), overrun=FALLEN["gloo_failed_routed"][1:], world_size=8)
    assert found.culprits == ()


def test_sizes_that_change_in_every_step_accuse_nobody() -> None:
    found = explain_failed(
        {rank: with_changing_sizes(data) for rank, data in routed().items()},
        overrun=FALLEN["gloo_failed_routed"],
        world_size=8,
    )
    assert found.culprits == ()


def with_changing_sizes(data: bytes) -> bytes:
    """As a mixture of experts, whose router sends each rank another number of tokens."""
    dump = json.loads(data)
    calls = [entry for entry in dump["entries"] if "all_to_all" in entry["profiling_name"]]
    for number, entry in enumerate(calls[:-1]):
        entry["input_sizes"] = entry["output_sizes"] = [[512 + 8 * number]]
    return json.dumps(dump).encode()
